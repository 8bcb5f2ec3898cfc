"""EROICA's localisation to the letter (NSDI 2026, Eq. 11): the rule that ours is held against.

A function is abnormal on a worker if it takes more than 1 % of the time and either more than its kind may, or
the worker is unlike the others: of 100 random workers, those at a Manhattan distance of 0.4 or more, each
dimension divided by its maximum, are more than the median of that share plus five times its MAD.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.diagnose.patterns import Patterns, Shares
from holdfast.observe.kineto import Kind

LEAST_BETA = 0.01
SAMPLED = 100
FAR = 0.4
TIMES = 5.0
MOST_BETA: dict[Kind, float] = {"python": 0.01, "collective": 0.30, "compute": 1.0, "memory": 0.05}
"""The upper end of what is expected; that of memory is not published, and ours."""
_TOGETHER = 8192


def find_abnormal(patterns: Patterns, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return which functions are abnormal on which workers."""
    abnormal = np.zeros(patterns.beta.shape, bool)
    for row, kind in enumerate(patterns.kinds):
        beta = patterns.beta[row]
        points = np.stack([_scaled(each[row]) for each in (patterns.beta, patterns.mu, patterns.sigma)])
        unlike = differing(points, rng)
        usual = np.median(unlike)
        limit = usual + TIMES * np.median(np.abs(unlike - usual))
        abnormal[row] = (beta > LEAST_BETA) & ((beta > MOST_BETA[kind]) | (unlike > limit))
    return abnormal


def _scaled(values: Shares) -> Shares:
    most = values.max(initial=0.0)
    return values / most if most > 0 else values


def differing(points: Shares, rng: np.random.Generator) -> Shares:
    """Return for each worker the share of sampled ones that are far from it."""
    workers = points.shape[1]
    sample = points[:, rng.choice(workers, min(SAMPLED, workers), replace=False)]
    unlike = np.empty(workers, np.float32)
    for first in range(0, workers, _TOGETHER):
        some = points[:, first : first + _TOGETHER]
        distance = np.abs(some[0][:, None] - sample[0])
        for axis in (1, 2):
            distance += np.abs(some[axis][:, None] - sample[axis])
        unlike[first : first + _TOGETHER] = (distance >= FAR).mean(axis=1, dtype=np.float32)
    return unlike
