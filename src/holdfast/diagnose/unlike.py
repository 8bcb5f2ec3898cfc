"""Who differs from the others of its role: robust scales with floors, and a limit that chance hardly reaches.

Values are compared within roles (the workers of a stage, or of a parallel group): a role that does something
else is no fault. What chance can do, the side on which no fault shows tells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FALSE_SHARE = 0.05
"""Of many that are named together, those that may be chance."""
_MAD = 1.4826
_ALONE = 8.0
_BEYOND = 2.0
"""What one alone has to reach, and how many times what chance has done: few values have short tails."""
_ALONE_OF_FEW = 5.0
"""The same in a small job, whose scales are wide already."""
_LEAST_SCORE = 4.0
_UNSURE = 10.0
_FEW = 2
"""Workers of a role, below which nobody can say what is usual."""
_MANY = 8
"""From which on the median does."""

Values = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Residuals(NamedTuple):
    """How far values are from those of their role."""

    usual: Values
    """Of the role of each worker."""
    off: Values
    score: Values
    """``off`` in units of the role's scale; 0 where a role has too few workers."""


class Floors(NamedTuple):
    """What a scale never falls below: measuring is not that exact."""

    absolute: float
    relative: float


class Roles:
    """Which workers do the same."""

    def __init__(self, roles: Ints) -> None:
        self._order = np.argsort(roles, kind="stable")
        ordered = roles[self._order]
        firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)) if len(roles) else np.zeros(0, int)
        self._parts = np.split(self._order, firsts[1:]) if len(firsts) else []

    def residuals(self, values: Values, floors: Floors, *, bad_side: int = 1) -> Residuals:
        """Hold each worker against what is usual in its role; ``bad_side`` is where faults show."""
        usual, score = np.zeros_like(values), np.zeros_like(values)
        for part in self._parts:
            mine = values[part]
            middle, scale = _usual(mine, bad_side)
            usual[part] = middle
            if len(part) >= _FEW:
                # The spread of few is itself not known well.
                least = (1 + _UNSURE / math.sqrt(len(part))) * max(
                    floors.absolute, floors.relative * abs(middle)
                )
                score[part] = (mine - middle) / max(scale, least)
        return Residuals(usual, values - usual, score)

    def least(self, values: Values) -> list[tuple[Ints, float]]:
        """Return the workers of each role with what three of four of them reach at least."""
        return [(part, float(np.quantile(values[part], 0.25, method="lower"))) for part in self._parts]

    def spreads(self, values: Values) -> list[tuple[Ints, float, float]]:
        """Return the workers of each role with their median and robust standard deviation."""
        found = []
        for part in self._parts:
            middle = float(np.median(values[part]))
            found.append((part, middle, _MAD * float(np.median(np.abs(values[part] - middle)))))
        return found


def _usual(values: Values, bad_side: int) -> tuple[float, float]:
    """Return what is usual in a role, and its scale: the median, and the median distance from it.

    Of a few, half may well have the same fault: then it is the better half that tells what is usual.
    """
    if len(values) < _MANY:
        better = np.sort(bad_side * values)[: max(1, len(values) // 2)] * bad_side
        middle = float(better.mean())
        return middle, float(np.abs(better - middle).max())
    middle = float(np.median(values))
    return middle, _MAD * float(np.median(np.abs(values - middle)))


def limit(scores: Sequence[Values], *, bad_side: int = 1) -> float:
    """Return the score from which on somebody differs, given all that is compared; faults show on one side.

    The other side tells what chance can do, whatever its tails are like. One alone has to be far beyond that;
    many are believed as soon as at most one in twenty of them could be chance.
    """
    bad = np.concatenate([np.zeros(0, np.float32), *(bad_side * each for each in scores)])
    if not len(bad):
        return math.inf
    chance, bad = np.sort(-bad[bad < 0]), np.sort(bad[bad > 0])[::-1]
    enough = _ALONE if max(map(len, scores)) >= _MANY else _ALONE_OF_FEW
    alone = max(enough, _BEYOND * float(chance[-1]) if len(chance) else 0.0)
    count = np.arange(1, len(bad) + 1)
    by_chance = 1 + len(chance) - np.searchsorted(chance, bad)
    good = np.flatnonzero((by_chance <= FALSE_SHARE * count) & (bad >= _LEAST_SCORE))
    return min(alone, float(bad[good[-1]]) if len(good) else math.inf)
