"""What the plot of step times shows beside the line: when the run was slow, what was done, who died."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import NamedTuple

from holdfast.incidents.values import Incident, Stage
from holdfast.serve.store import PacePoint
from holdfast.serve.web.views.words import parse


class Shade(NamedTuple):
    """A time in which a run was in trouble."""

    start: datetime
    end: datetime
    kind: str
    words: str


class Mark(NamedTuple):
    """A moment worth a sign above the line."""

    at: datetime
    shape: str
    tone: str
    label: str
    """A few letters beside it; none where the shape says it."""
    words: str


class Pace(NamedTuple):
    """All that is drawn; times are those of the run's own clocks."""

    points: Sequence[PacePoint]
    shades: Sequence[Shade]
    marks: Sequence[Mark]
    usual_s: float | None
    """The median of what lies outside the shades."""


def make_pace(points: Sequence[PacePoint], incidents: Sequence[Incident]) -> Pace:
    """Return what there is to draw of a run."""
    timed = [(at, point) for point in points if (at := parse(point.at)) is not None]
    timed.sort(key=lambda each: each[0])
    if not timed:
        return Pace([], [], [], None)
    ends = (timed[0][0], timed[-1][0])
    shades = [shade for each in incidents if (shade := _shade(each, timed)) is not None]
    marks = [mark for each in incidents for mark in _marks(each) if ends[0] <= mark.at <= ends[1]]
    calm = _outside(timed, shades)
    return Pace([point for _, point in timed], shades, marks, median(calm) if calm else None)


def _shade(incident: Incident, timed: Sequence[tuple[datetime, PacePoint]]) -> Shade | None:
    opened = parse(incident.opened_at)
    closed = parse(incident.closed_at) if incident.closed_at else timed[-1][0]
    if opened is None or closed is None:
        return None
    start = _began(incident, opened, timed)
    first, last = timed[0][0], timed[-1][0]
    if closed < first or start > last:
        return None
    words = incident.words
    return Shade(max(start, first), min(closed, last), incident.kind, words)


def _began(incident: Incident, opened: datetime, timed: Sequence[tuple[datetime, PacePoint]]) -> datetime:
    """Return when the first slow step was made, which is before anybody could know that it was slow."""
    if incident.since_step is None:
        return opened
    # Steps are counted anew after a restart: only the stretch just before counts.
    start = opened
    for index in range(bisect_right(timed, opened, key=lambda each: each[0]) - 1, -1, -1):
        at, point = timed[index]
        if point.step < incident.since_step or (start - at).total_seconds() > 600:
            break
        start = at
    return start


def _outside(timed: Sequence[tuple[datetime, PacePoint]], shades: Sequence[Shade]) -> list[float]:
    """Return what steps took outside all shades; there may be thousands of both."""
    calm = []
    ahead = sorted(shades, key=lambda shade: shade.start)
    number, end = 0, None
    for at, point in timed:
        while number < len(ahead) and ahead[number].start <= at:
            end = ahead[number].end if end is None else max(end, ahead[number].end)
            number += 1
        if end is None or at > end:
            calm.append(point.step_s)
    return calm


def _marks(incident: Incident) -> list[Mark]:
    found = []
    for stage in incident.stages:
        look = _look(incident, stage)
        at = parse(stage.at)
        if look is not None and at is not None:
            found.append(Mark(at, *look, stage.words))
    return found


def _look(incident: Incident, stage: Stage) -> tuple[str, str, str] | None:
    match incident.kind, stage.name:
        case "slow", "detected":
            return "triangle", "warn", ""
        case "death", "detected":
            return "cross", "bad", ""
        case "hang", "detected":
            return "bars", "bad", ""
        case _, "done":
            return "square", "deed", _level(stage.words)
        case _, "closed":
            return "tick", "good", ""
    return None


def _level(words: str) -> str:
    """Return the level that a sentence begins with, if it does."""
    first = words.split(" ", 1)[0]
    return first if first in ("S2", "S3", "S4", "undo") else ""
