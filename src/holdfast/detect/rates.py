"""When a rate changed: counts over stretches of time, cut where another rate explains them better.

For series that are over and short, such as failures per week; steps of a job are judged one by one in
``steps``. Exact: of all ways to cut the series, the one with the least deviance plus a price for each cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

_PRICE = 3.5
"""Of a cut, in units of log(n): a level and a place have to be worth it. In series without a change, of 10 to
500 stretches, one in fifty or so is cut."""
_LEAST_STRETCHES = 2
_NEAR = 2
"""Stretches on either side that tell what one should have been."""

Floats = npt.NDArray[np.float64]


class RateChange(msgspec.Struct, frozen=True, kw_only=True):
    """From one stretch on, the rate is another."""

    at: int
    """Number of the first stretch with the new rate."""
    before: float
    """Per unit of exposure; so is the next."""
    after: float


def rate_changes(counts: Sequence[int], exposures: Sequence[float]) -> list[RateChange]:
    """Return where counts per exposure changed, in order; stretches without exposure tell nothing."""
    kept = [at for at, exposure in enumerate(exposures) if exposure > 0]
    if len(kept) < 2 * _LEAST_STRETCHES:
        return []
    count = np.array([counts[at] for at in kept], dtype=np.float64)
    exposure = np.array([exposures[at] for at in kept], dtype=np.float64)
    cuts = _best_cuts(count, exposure, price=_PRICE * math.log(len(kept)) * dispersion(count, exposure))
    edges = [0, *cuts, len(kept)]
    rates = [float(count[low:high].sum() / exposure[low:high].sum()) for low, high in pairwise(edges)]
    return [
        RateChange(at=kept[cut], before=rates[number], after=rates[number + 1])
        for number, cut in enumerate(cuts)
    ]


def dispersion(counts: Floats, exposures: Floats) -> float:
    """Return how much more counts vary than those of independent events, from neighbours alone; at least 1.

    Failures come in clusters: a switch takes a rack with it. A slow change of the rate hardly shows in this.
    """
    size = len(counts)
    ratios = []
    for at in range(size):
        around = [other for other in range(max(0, at - _NEAR), min(size, at + _NEAR + 1)) if other != at]
        near = exposures[around].sum()
        expected = counts[around].sum() / near * exposures[at]
        # The neighbours' own noise adds to the difference.
        variance = expected * (1 + exposures[at] / near)
        if variance > 0:
            ratios.append((counts[at] - expected) ** 2 / variance)
    # A trimmed mean, as a change itself makes two or three stretches look wild.
    kept = sorted(ratios)[: max(1, math.ceil(0.9 * len(ratios)))]
    return max(1.0, sum(kept) / len(kept) / _TRIMMED) if kept else 1.0


_TRIMMED = 0.68
"""The mean of the lower nine tenths of a squared normal variable."""


def _best_cuts(counts: Floats, exposures: Floats, *, price: float) -> list[int]:
    """Return where to cut, by dynamic programming over the last cut."""
    total = np.concatenate(([0.0], np.cumsum(counts)))
    spent = np.concatenate(([0.0], np.cumsum(exposures)))
    size = len(counts)
    best = np.full(size + 1, np.inf)
    best[0] = -price
    last = np.zeros(size + 1, dtype=np.int64)
    for end in range(_LEAST_STRETCHES, size + 1):
        starts = np.arange(end - _LEAST_STRETCHES + 1)
        events, time = total[end] - total[starts], spent[end] - spent[starts]
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(events > 0, -2 * events * np.log(events / time), 0.0)
        scores = best[starts] + loss + price
        last[end] = int(np.argmin(scores))
        best[end] = scores[last[end]]
    cuts: list[int] = []
    at = int(last[size])
    while at > 0:
        cuts.append(at)
        at = int(last[at])
    return cuts[::-1]
