"""What came of a run in figures: how long it took, how much of that it stood still, what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.incidents.order import moment_s
from holdfast.incidents.story import tell_story
from holdfast.incidents.values import Incident, RunView
from holdfast.serve.report.runfiles import RunFiles
from holdfast.values import AttemptStarted, Record, Regrouped, RunStarted, StepSeen


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a run went, in seconds by the clock of its first node."""

    whole_s: float
    """From the start of the launcher to its end, or to what was heard last."""
    startup_s: float
    """Until the first step of an attempt, where nobody died before."""
    still_s: float
    """Nobody trained: from a death or a hang until training went on, restarts included."""
    slow_s: float
    """Lost because steps took too long: something was slow, or missing. Pauses to do something are in it."""

    @property
    def ettr(self) -> float | None:
        """The share in which it got on; at most, since what was done twice after a restart is not known."""
        if self.whole_s <= 0:
            return None
        lost_s = self.startup_s + self.still_s + self.slow_s
        return min(1.0, max(0.0, 1 - lost_s / self.whole_s))


class Tale(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report tells."""

    name: str
    view: RunView
    files: RunFiles
    times: Times
    is_alive: bool | None
    """Whether the launcher of a run that has not ended lives; None: it cannot be seen from here."""
    heard_at: str
    """When something was written last."""

    @property
    def has_ended(self) -> bool:
        """Whether somebody told its end."""
        return self.view.state in ("failed", "stopped", "ended", "lost")


def make_tale(files: RunFiles, *, is_alive: bool | None) -> Tale:
    """Put together what a run directory holds."""
    records = files.log.records
    view = tell_story(records, summaries=files.rows)
    heard_at = _latest([*(each.stamp.at for each in records), *(row.at for row in files.rows)])
    return Tale(
        name=files.folder.resolve().name,
        view=view,
        files=files,
        times=_reckon(view, records, view.ended_at or heard_at),
        is_alive=is_alive,
        heard_at=heard_at,
    )


def _latest(times: Sequence[str]) -> str:
    known = [(at_s, at) for at in times if (at_s := moment_s(at)) is not None]
    return max(known)[1] if known else ""


def _reckon(view: RunView, records: Sequence[Record], ended_at: str) -> Times:
    first_s, last_s = moment_s(view.started_at), moment_s(ended_at)
    if first_s is None or last_s is None or last_s <= first_s:
        return Times(whole_s=0.0, startup_s=0.0, still_s=0.0, slow_s=0.0)
    still = _union(span for each in view.incidents if (span := standing(each)) is not None)
    startups = _union([*still, *_startups(records)])
    within = [(max(first_s, low), min(last_s, high)) for low, high in still]
    still_s = sum(max(0.0, high - low) for low, high in within)
    both_s = sum(max(0.0, min(last_s, high) - max(first_s, low)) for low, high in startups)
    return Times(
        whole_s=last_s - first_s,
        startup_s=max(0.0, both_s - still_s),
        still_s=still_s,
        slow_s=sum(each.lost_s - each.stood_s for each in view.incidents),
    )


def standing(incident: Incident) -> tuple[float, float] | None:
    """Return when nobody trained because of it."""
    if incident.stood_s <= 0:
        return None
    ends = [stage.at for stage in incident.stages if stage.name in ("done", "closed")]
    end_s = moment_s(ends[0] if ends else incident.stages[-1].at)
    return None if end_s is None else (end_s - incident.stood_s, end_s)


def _startups(records: Sequence[Record]) -> list[tuple[float, float]]:
    """Return from when to when attempts got going, by the first node that tells."""
    head = min((each.stamp.node for each in records), default=0)
    spans, begun = [], None
    for record in (each for each in records if each.stamp.node == head):
        at_s = moment_s(record.stamp.at)
        if at_s is None:
            continue
        match record.event:
            case RunStarted() | AttemptStarted():
                begun = at_s if begun is None else begun
            case StepSeen() | Regrouped(generation=0) if begun is not None:
                # That all are connected is the beginning only where no step is told.
                if isinstance(record.event, StepSeen) or not _has_steps(records, record.stamp.attempt):
                    spans.append((begun, at_s))
                    begun = None
    return spans


def _has_steps(records: Iterable[Record], attempt: int) -> bool:
    return any(isinstance(each.event, StepSeen) and each.stamp.attempt == attempt for each in records)


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined
