"""A run's story: give it every record of a run's logs, in order, and ask at any time how the run is."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.incidents.crew import Crew
from holdfast.incidents.trouble import Troubles
from holdfast.incidents.values import Bill, Incident, RunState, RunView
from holdfast.values import (
    Applied,
    AttemptStarted,
    JobStopped,
    LauncherDied,
    Record,
    Regrouped,
    RunEnded,
    RunStarted,
    StepSeen,
)

_HOUR_S = 3600.0


class Story:
    """What is known of one run."""

    def __init__(self) -> None:
        self._crew = Crew()
        self._troubles = Troubles()
        self._started: Record | None = None
        self._ended: Record | None = None
        self._stopped = ""
        self._is_lost = False
        self._in_force: list[str] = []
        self._step = -1

    def add(self, record: Record) -> None:
        """Take in what happened."""
        self._crew.add(record)
        self._troubles.add(record)
        match record.event:
            case RunStarted() if self._started is None or record.stamp.node == 0:
                self._started = record
                self._ended, self._is_lost = None, False  # Somebody has started it again in the same place.
            case RunEnded() if record.stamp.node == 0 or self._ended is None:
                self._ended = record
            case LauncherDied() if record.stamp.node == 0:
                self._is_lost = True
            case JobStopped(reason=reason):
                self._stopped = reason
            case Applied(level="undo"):
                self._in_force = []
            case Applied(level=level):
                self._in_force.append(level)
            case _:
                pass
        self._follow_steps(record)

    def reach(self, step: int) -> None:
        """Take in how far the run has come, which its events do not tell."""
        self._step = max(self._step, step)

    def view(self) -> RunView:
        """Return the run as it is now."""
        started = self._started
        incidents = self._troubles.view(self._step)
        return RunView(
            run_id=started.event.run_id if started and isinstance(started.event, RunStarted) else "",
            argv=tuple(started.event.argv) if started and isinstance(started.event, RunStarted) else (),
            state=self._state(),
            started_at=started.stamp.at if started is not None else "",
            ended_at=self._ended.stamp.at if self._ended is not None else None,
            reason=self._reason(),
            attempt=self._crew.attempt,
            world_size=self._crew.world_size,
            nodes=self._crew.nodes,
            pp=self._crew.pp,
            microbatches=self._crew.microbatches,
            generation=self._crew.generation,
            step=self._step,
            levels=tuple(self._in_force),
            workers=self._crew.view(),
            incidents=incidents,
            bill=make_bill(incidents, self._crew.world_size),
        )

    def _follow_steps(self, record: Record) -> None:
        match record.event:
            case AttemptStarted() if record.stamp.node == 0:
                self._step = -1  # Steps are counted anew, or from an older one.
            case StepSeen(step=step) | Regrouped(version=step) | Applied(version=step):
                self.reach(step)
            case _:
                pass

    def _reason(self) -> str:
        if self._ended is not None and isinstance(self._ended.event, RunEnded):
            is_well = _name_end(self._ended.event) == "ended"
            return self._ended.event.reason if is_well else self._stopped or self._ended.event.reason
        return "its launcher was killed" if self._is_lost else self._stopped

    def _state(self) -> RunState:
        if self._ended is not None and isinstance(self._ended.event, RunEnded):
            return _name_end(self._ended.event)
        if self._is_lost:
            return "lost"
        if self._troubles.is_hung:
            return "hung"
        if not self._crew.is_training:
            return "starting"
        if self._troubles.is_slow:
            return "slow"
        return "degraded" if self._crew.is_short else "training"


def tell_story(records: Iterable[Record], *, step: int = -1) -> RunView:
    """Return what a run's records come to, with the last step that was seen."""
    story = Story()
    for record in records:
        story.add(record)
    story.reach(step)
    return story.view()


def make_bill(incidents: Iterable[Incident], gpus: int) -> Bill:
    """Return what incidents cost all GPUs of a job together."""
    told = list(incidents)
    hours = gpus / _HOUR_S
    return Bill(
        lost_gpu_h=hours * sum(each.lost_s for each in told),
        paid_gpu_h=hours * sum(each.paid_s for each in told),
        saved_gpu_h=hours * sum(each.saved_s for each in told),
    )


def _name_end(event: RunEnded) -> RunState:
    if event.reason in ("succeeded", "left the rendezvous", "the watched process ended"):
        return "ended"
    return "stopped" if event.reason.startswith("stopped") else "failed"
