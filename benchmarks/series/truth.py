"""What a detector ought to say about a job, from the slowdown that was put into it.

A fault counts where the expected step time is at least 1.10 x the healthy one for 20 steps. What is milder or
shorter counts neither way: to report it is not false, to be silent is no miss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SLOW = 1.10
LEAST_STEPS = 20
_LEVEL = 1.10
"""A fault on top of another is one more onset if it makes things worse by this factor."""


@dataclass(frozen=True)
class Job:
    """One job: what was measured, and what was behind it."""

    name: str
    durations_s: Floats
    slowdown: Floats
    """Expected step time over the healthy one, per step; by faults alone."""
    work: Floats | None = None
    """What a step had to do, tokens for example, where that is known."""


@dataclass(frozen=True)
class Onset:
    """A fault that has to be found."""

    begins: int
    """First step that is slower at all."""
    step: int
    """First step that is slow enough to count."""
    end: int
    """First step that no longer is."""


def onsets_of(slowdown: Floats) -> list[Onset]:
    """Return what has to be found, in order."""
    found = []
    for start, end in runs_of(slowdown >= SLOW):
        if end - start >= LEAST_STEPS:
            found.append(Onset(_begin_of(slowdown, start), start, end))
            found += [Onset(step, step, end) for step in _jumps(slowdown, start, end)]
    return found


def runs_of(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the maximal runs of true values, first and behind the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def _begin_of(slowdown: Floats, start: int) -> int:
    healthy = np.flatnonzero(slowdown[:start] <= 1.0)
    return int(healthy[-1]) + 1 if len(healthy) else 0


def _jumps(slowdown: Floats, start: int, end: int) -> list[int]:
    """Return where, within a slow run, it gets much worse at once, for long enough."""
    ratios = slowdown[start + 1 : end] / slowdown[start : end - 1]
    steps = [start + 1 + int(index) for index in np.flatnonzero(ratios >= _LEVEL)]
    return [step for step in steps if _holds(slowdown, step, end)]


def _holds(slowdown: Floats, step: int, end: int) -> bool:
    level = slowdown[step] / slowdown[step - 1]
    after = slowdown[step : step + LEAST_STEPS]
    return step + LEAST_STEPS <= end and bool(np.all(after / slowdown[step - 1] >= min(_LEVEL, level)))
