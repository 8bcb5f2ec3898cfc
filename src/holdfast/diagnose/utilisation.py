"""How well a function uses the resource that it depends on: mean and spread, while it really uses it.

Whoever comes early to a collective sends a little and then waits. EROICA's critical duration (its Algorithm
1) leaves the waiting out: the part with the shortest pauses that still holds 80 % of what was used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.observe.kineto import Floats, Ints

SHARE = 0.8
"""Of what was used, that has to be in the part; above one half, only one part can hold it."""


class Used(NamedTuple):
    """Mean and standard deviation of a resource's share."""

    mean: float
    spread: float


def critical_span(used: Floats, floor: float = 0.0) -> tuple[int, int]:
    """Return the first and the last sample of the part; what is not above the floor is a pause.

    The whole stretch where nothing was used at all.
    """
    busy = np.flatnonzero(used > floor)
    if not len(busy):
        return 0, len(used) - 1
    wanted = SHARE * float(used[busy].sum())
    sums = np.concatenate([[0.0], np.cumsum(used[busy])])
    pauses = np.diff(busy) - 1
    allowed = np.unique(np.append(pauses, 0))
    low, high = 0, len(allowed) - 1
    best = (0, len(busy) - 1)
    while low <= high:
        middle = (low + high) // 2
        part = _heaviest(sums, pauses, int(allowed[middle]))
        if sums[part[1] + 1] - sums[part[0]] >= wanted * (1 - 1e-12):
            best, high = part, middle - 1
        else:
            low = middle + 1
    return int(busy[best[0]]), int(busy[best[1]])


def _heaviest(sums: Floats, pauses: Floats, most: int) -> tuple[int, int]:
    """Return the run of used samples with no longer pause than that in which most was used."""
    cuts = np.flatnonzero(pauses > most)
    firsts = np.concatenate([[0], cuts + 1])
    lasts = np.concatenate([cuts, [len(pauses)]])
    at = int(np.argmax(sums[lasts + 1] - sums[firsts]))
    return int(firsts[at]), int(lasts[at])


def use(starts: Floats, ends: Floats, at: Floats, used: Floats, floor: float = 0.0) -> Used:
    """Return the use over all executions of a function, each weighted by its critical duration.

    An execution that is too short for a sample of its own has that of the moment nearest to it.
    """
    if not len(at) or not len(starts):
        return Used(0.0, 0.0)
    first, last = np.searchsorted(at, starts), np.searchsorted(at, ends, side="right")
    weight, mean, spread = np.empty(len(starts)), np.empty(len(starts)), np.zeros(len(starts))
    is_short = last - first < 2
    nearest = _nearest(at, (starts[is_short] + ends[is_short]) / 2)
    weight[is_short], mean[is_short] = ends[is_short] - starts[is_short], used[nearest]
    for place in np.flatnonzero(~is_short).tolist():
        mine = used[first[place] : last[place]]
        low, high = critical_span(mine, floor)
        part = mine[low : high + 1]
        weight[place] = (ends[place] - starts[place]) * len(part) / len(mine)
        mean[place], spread[place] = part.mean(), part.std()
    total = weight.sum()
    if total <= 0:
        return Used(float(mean.mean()), float(spread.mean()))
    return Used(float((weight * mean).sum() / total), float((weight * spread).sum() / total))


def _nearest(at: Floats, moments: Floats) -> Ints:
    if len(at) == 1:
        return np.zeros(len(moments), np.int64)
    after = np.clip(np.searchsorted(at, moments), 1, len(at) - 1)
    is_before = moments - at[after - 1] <= at[after] - moments
    return np.where(is_before, after - 1, after)
