"""Bayesian online change points: how long the current stretch of a series has lasted, with probabilities.

Adams and MacKay's recursion, scored as FALCON's appendix has it: a value is scored with the run that it
would belong to, a new run by the prior. (Scored with the run before it, a new run has the probability of the
hazard, always.) Beyond both: a value may be an outlier, which costs every run alike and teaches it little, so
a step that took long by itself begins no run; and values that depend on each other count for less than one.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

HAZARD = 1 / 1000
"""Probability that a run ends with a step."""
_OUTLIER = 0.01
"""Probability that a step is like no other."""
_OUTLIER_DENSITY = 0.25
"""Of an outlier, anywhere within a factor of e^2 up or down."""
_LEVEL_SPREAD = 0.3
"""How far, in logarithms, a new run's level may lie from the first one's."""
_PRIOR_WEIGHT = 2.0
"""For how many values' halves the expected noise of a new run counts."""
_MOST_RUNS = 64
_ROOM = 128
"""Runs are dropped when there are so many, down to the best."""
_FORGET = 16.0
"""Runs whose log-probability is by so much worse than the best one's go at the same time."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a series with one level, in logarithms."""

    start: int
    """Where its first value was."""
    weight: float
    """How many values tell its level: outliers hardly count."""
    mean: float
    spread: float
    """Standard deviation of its values."""


class Runs:
    """All runs that may be the current one; memory and time per value are bounded."""

    def __init__(self, level: float, noise: float) -> None:
        self.noise = noise
        """Expected standard deviation within a run."""
        self._level = level
        self._count = 0
        self._starts = np.zeros(_ROOM, dtype=np.int64)
        self._log_p = np.zeros(_ROOM)
        self._stats = np.zeros((3, _ROOM))
        """Weight, mean, and sum of squared deviations of each run."""

    def update(self, value: float, *, at: int, memory: float = 0.0) -> None:
        """Take in the next value; with correlated neighbours (``memory``) each tells less."""
        new = self._count
        self._starts[new] = at
        self._log_p[new] = _BEGIN if new else 0.0
        self._stats[:, new] = 0.0
        self._count = new + 1
        log_p, stats = self._log_p[: self._count], self._stats[:, : self._count]
        score, share = self._score(stats, value, (1 + memory) / (1 - memory))
        log_p += score
        log_p -= log_p.max()
        _learn(stats, value, share)
        if self._count == _ROOM:
            self._prune()

    @property
    def best(self) -> Run:
        """The most probable current run."""
        index = int(self._log_p[: self._count].argmax())
        weight, mean, squares = self._stats[:, index].tolist()
        variance = (squares + _PRIOR_WEIGHT * self.noise**2) / (weight + _PRIOR_WEIGHT)
        return Run(start=int(self._starts[index]), weight=weight, mean=mean, spread=math.sqrt(variance))

    def _score(self, stats: Floats, value: float, wider: float) -> tuple[Floats, Floats]:
        """Return the log-density of a value in each run, and the probability that it is no outlier.

        Of correlated values a few can lie apart together; a variance that is ``wider`` allows for that.
        """
        weight, mean, squares = stats
        prior = (self.noise / _LEVEL_SPREAD) ** 2
        kappa = weight + prior
        shift = mean - self._level
        known = weight / kappa
        offset = value - self._level - known * shift
        # Student's t with 2 alpha degrees of freedom; spread is 2 alpha times the squared scale.
        alpha = weight / 2 + (1 + _PRIOR_WEIGHT / 2)
        spread = _PRIOR_WEIGHT * self.noise**2 + squares + prior * known * shift**2
        spread *= wider * (1 + 1 / kappa)
        # log(gamma(a + 1/2) / gamma(a)), to 1e-4 for a of 2 or more.
        density = 0.5 * np.log(alpha / (np.pi * spread)) - 1 / (8 * alpha)
        density -= (alpha + 0.5) * np.log1p(offset**2 / spread)
        density = np.exp(density) * (1 - _OUTLIER)
        total = density + _OUTLIER * _OUTLIER_DENSITY
        return np.log(total), density / total

    def _prune(self) -> None:
        least = max(-_FORGET, float(np.partition(self._log_p, -_MOST_RUNS)[-_MOST_RUNS]))
        kept = np.flatnonzero(self._log_p >= least)[-_MOST_RUNS:]
        self._count = len(kept)
        for array in (self._starts, self._log_p):
            array[: self._count] = array[kept]
        self._stats[:, : self._count] = self._stats[:, kept]


_BEGIN = math.log(HAZARD / (1 - HAZARD))
_NEVER = 1e-300
"""Instead of 0, where a run has learnt nothing yet."""


def _learn(stats: Floats, value: float, share: Floats) -> None:
    weight, mean, squares = stats
    step = value - mean
    weight += share
    moved = share * step / (weight + _NEVER)
    mean += moved
    squares += share * step * (step - moved)
