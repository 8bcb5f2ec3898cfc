"""The picture of a run: step times along the clock, its incidents, deaths, and what was done."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from holdfast.incidents.order import moment_s
from holdfast.incidents.values import Incident
from holdfast.serve.axis import Axis
from holdfast.serve.report.tale import Tale, standing
from holdfast.serve.svg import Box, num, text
from holdfast.values import Applied, AttemptStarted, Record, Regrouped, WorkerDied, WorkerHung

WIDTH, _HEIGHT = 1000, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 976.0, 84.0, 330.0
_LANES = (76.0, 60.0, 44.0)
"""Heights at which words about moments stand, so that neighbours do not hide each other."""
_MOST_POINTS = 1500
_GAP_S = 5.0
"""Rows further apart than this, and than ten usual ones, are not joined: nobody trained between them."""
_CHARACTER = 6.6
STYLE = (
    ".run{--band:#fff0e0;--hung:#fde7e7;--line2:#0072b2;--worst:#9fc4dd;--act:#00795a;--dead:#b3261e;"
    "--ink:#1f2328;--soft:#59636e;--line:#e1e6eb}"
    "@media(prefers-color-scheme:dark){.run{--band:#3a2a18;--hung:#3d2023;--line2:#58a6ff;--worst:#35577a;"
    "--act:#2ec49a;--dead:#ff8f86;--ink:#e6edf3;--soft:#9aa5b1;--line:#2b323a}}"
    ".run text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}"
    ".run .k{fill:var(--ink);font-weight:600}.run .e{text-anchor:end}.run .m{text-anchor:middle}"
    ".run .grid{stroke:var(--line)}.run .slow{fill:var(--band)}.run .hang,.run .death{fill:var(--hung)}"
    ".run path{fill:none;stroke-linejoin:round}.run .own{stroke:var(--line2);stroke-width:1.8}"
    ".run .worst{stroke:var(--worst);stroke-width:1.2}"
    ".run .act{stroke:var(--act);stroke-dasharray:4 3}.run text.act{fill:var(--act);stroke:none}"
    ".run .dead{stroke:var(--dead);stroke-dasharray:2 2}.run text.dead{fill:var(--dead);stroke:none}"
    ".run .start{stroke:var(--soft);stroke-dasharray:1 3}.run text.start{fill:var(--soft);stroke:none}"
)


_Place = Callable[[float], float]
"""From a moment to a place across."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A second of a run."""

    at_s: float
    attempt: int
    step: int
    step_s: float
    slowest_s: float


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment worth a line, and what it says."""

    at_s: float
    words: str
    kind: str


def draw_run(tale: Tale) -> str:
    """Return the picture as SVG; empty where no step was timed."""
    points = _points(tale)
    first_s = moment_s(tale.view.started_at)
    if len(points) < 2 or first_s is None:
        return ""
    last_s = max(points[-1].at_s, moment_s(tale.view.ended_at or "") or 0.0)
    if last_s <= first_s:  # A log may say anything.
        return ""
    unit_s, unit = _unit(last_s - first_s)
    across = Axis(0.0, (last_s - first_s) / unit_s, (_LEFT, _RIGHT))
    highest_s = _highest(points)
    up = Axis(0.0, highest_s, (_BOTTOM, _TOP))

    def at(moment: float) -> float:
        return min(_RIGHT, max(_LEFT, across((moment - first_s) / unit_s)))

    parts = [*_bands(tale.view.incidents, points, at, last_s), *_grid(up), *_clock(across, unit)]
    parts += [_line(points, at, up, "worst"), _line(points, at, up, "own")]
    parts += _marks(_moments(tale.files.log.records), at)
    return (
        f'<svg class="run" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Step times of the run">\n' + "\n".join(parts) + "\n</svg>"
    )


def _points(tale: Tale) -> list[Point]:
    points = []
    for row in tale.files.rows:
        at_s = moment_s(row.at)
        times = sorted(value for value in row.duration_s.values() if 1e-9 < value < 1e9)
        if at_s is not None and times:
            points.append(
                Point(
                    at_s=at_s,
                    attempt=row.attempt,
                    step=max(row.steps.values(), default=-1),
                    step_s=statistics.median(times),
                    slowest_s=times[-1],
                )
            )
    points.sort(key=lambda each: each.at_s)
    every = -(-len(points) // _MOST_POINTS)
    if every <= 1:
        return points
    groups = [points[start : start + every] for start in range(0, len(points), every)]
    return [_join(group) for group in groups]


def _join(group: Sequence[Point]) -> Point:
    return Point(
        at_s=group[-1].at_s,
        attempt=group[-1].attempt,
        step=group[-1].step,
        step_s=statistics.median(each.step_s for each in group),
        slowest_s=max(each.slowest_s for each in group),
    )


def _highest(points: Sequence[Point]) -> float:
    """Return the top of the axis: rare rows far above all others are cut off."""
    times = sorted(each.slowest_s for each in points)
    typical = times[int(0.97 * (len(times) - 1))]
    return 1.15 * max(typical, max(each.step_s for each in points) if len(points) < 30 else typical)


def _unit(whole_s: float) -> tuple[float, str]:
    for limit_s, unit_s, name in ((300, 1.0, "s"), (7200, 60.0, "min")):
        if whole_s < limit_s:
            return unit_s, name
    return 3600.0, "h"


def _bands(
    incidents: Sequence[Incident], points: Sequence[Point], at: _Place, last_s: float
) -> Iterator[str]:
    for number, incident in enumerate(incidents, start=1):
        opened_s, closed_s = _began(incident, points), moment_s(incident.closed_at or "")
        if opened_s is None:
            continue
        left, right = at(opened_s), at(closed_s if closed_s is not None else last_s)
        box = Box(left, _TOP, max(2.0, right - left), _BOTTOM - _TOP)
        yield box.draw(incident.kind, title=f"incident {number}: {incident.words}")
        yield text(min(left + 4, _RIGHT - 12), _BOTTOM - 6, str(number), "k")


def _began(incident: Incident, points: Sequence[Point]) -> float | None:
    """Return when it began, which is before it was noticed: of a slow job, with its first slow step."""
    opened_s = moment_s(incident.opened_at)
    if (still := standing(incident)) is not None:
        return still[0]
    if opened_s is None or incident.since_step is None:
        return opened_s
    before = [each for each in points if each.at_s < opened_s]
    # Rows of an attempt before may have come as far.
    slow = [
        each for each in before if each.attempt == before[-1].attempt and each.step >= incident.since_step
    ]
    return slow[0].at_s if slow else opened_s


def _grid(up: Axis) -> Iterator[str]:
    for value in up.ticks():
        y = num(up(value))
        yield f'<path class="grid" d="M{num(_LEFT)} {y}H{num(_RIGHT)}"/>'
        yield text(_LEFT - 8, up(value) + 4, f"{value:g} s" if up.high >= 1 else f"{1000 * value:g} ms", "e")
    yield text(4, 16, "step time: median of the ranks; lighter: the slowest rank")


def _clock(across: Axis, unit: str) -> Iterator[str]:
    for value in across.ticks():
        yield text(across(value), _BOTTOM + 18, f"{value:g}", "m")
    yield text(
        _RIGHT, _BOTTOM + 38, f"{unit} after the start; numbers in shaded parts are those of incidents", "e"
    )


def _line(points: Sequence[Point], at: _Place, up: Axis, kind: str) -> str:
    gaps = sorted(b.at_s - a.at_s for a, b in itertools.pairwise(points))
    longest_s = max(_GAP_S, 10 * gaps[len(gaps) // 2])
    words, before = [], None
    for each in points:
        value = each.step_s if kind == "own" else each.slowest_s
        is_joined = before is not None and each.at_s - before <= longest_s
        words.append(f"{'L' if is_joined else 'M'}{num(at(each.at_s))} {num(up(min(value, up.high)))}")
        before = each.at_s
    return f'<path class="{kind}" d="{"".join(words)}"/>'


# --- moments ------------------------------------------------------------------------------------


def _moments(records: Iterable[Record]) -> list[Mark]:
    found = []
    for record in records:
        at_s = moment_s(record.stamp.at)
        if at_s is None:
            continue
        match record.event:
            case Applied(level=level):
                found.append(Mark(at_s=at_s, words=level, kind="act"))
            case WorkerDied(death=death):
                found.append(Mark(at_s=at_s, words=f"rank {death.rank} died", kind="dead"))
            case WorkerHung(rank=rank):
                found.append(Mark(at_s=at_s, words=f"rank {rank} hung", kind="dead"))
            case Regrouped(newcomers=[rank, *_]):
                found.append(Mark(at_s=at_s, words=f"rank {rank} joins", kind="act"))
            case AttemptStarted() if record.stamp.attempt > 0:
                found.append(Mark(at_s=at_s, words="restart", kind="start"))
    return sorted(found, key=lambda each: each.at_s)


def _marks(moments: Sequence[Mark], at: _Place) -> Iterator[str]:
    """Yield a line for each moment; words stand in lanes, and are left out where all are taken."""
    free = dict.fromkeys(_LANES, 0.0)
    for mark in moments:
        x = at(mark.at_s)
        yield f'<path class="{mark.kind}" d="M{num(x)} {num(_TOP)}V{num(_BOTTOM)}"/>'
        width = _CHARACTER * len(mark.words)
        left = min(x - 2, _RIGHT - width)
        lane = next((y for y, end in free.items() if left >= end), None)
        if lane is not None:
            yield text(left, lane, mark.words, mark.kind)
            free[lane] = left + width + 8
