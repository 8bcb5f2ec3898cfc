"""How sure a failure rate is: the exact interval of a Poisson count, and a wider one where nodes differ.

k failures in an exposure T say that the rate lies between a gamma quantile of shape k and one of shape k + 1,
over T. That holds if failures come independently and all nodes are alike. Where the counts of nodes scatter
more than that (variance above mean), the interval is too narrow; then the quasi-Poisson one is given as well.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, chdtrc, gammaincinv

LEVEL = 0.90
SURE = 0.01
"""A scatter that chance would make less often than this is none of chance."""

Floats = NDArray[np.float64]


class Dispersion(msgspec.Struct, frozen=True, kw_only=True):
    """How much the counts of nodes scatter, beside what chance alone would make."""

    ratio: float
    """Variance over mean, each node by its exposure; 1 where all nodes are alike."""
    chance: float
    """How often alike nodes would scatter as much."""
    nodes: int

    @property
    def is_too_wide(self) -> bool:
        """Whether the Poisson interval is too narrow."""
        return self.ratio > 1 and self.chance < SURE

    @property
    def factor(self) -> float:
        """By what the variance of the sum is to be multiplied; never less than 1."""
        return self.ratio if self.is_too_wide else 1.0

    def tell(self) -> str:
        """Say what that means for the interval."""
        ratio = f"failures per node have a variance of {self.ratio:.2g} times their mean ({self.nodes} nodes)"
        if not self.is_too_wide:
            return f"{ratio}: no more than chance, the Poisson interval stands"
        return (
            f"{ratio}: nodes are not alike, the Poisson interval is too narrow for a fleet like this one; "
            f"the quasi-Poisson interval counts every {self.ratio:.2g} failures as one"
        )


def rate_interval(failures: ArrayLike, exposure: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return the ends of the exact interval of a Poisson rate, for one count or for many.

    Counts need not be whole: see ``quasi_interval``. Without exposure nothing is known: 0 to infinity.
    """
    assert 0 < level < 1
    count, over = np.broadcast_arrays(np.asarray(failures, float), np.asarray(exposure, float))
    tail = (1 - level) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        # Shape 0 has no gamma distribution; its place is taken by one that is thrown away.
        low = np.where(count > 0, gammaincinv(np.where(count > 0, count, 1.0), tail), 0.0) / over
        high = gammaincinv(count + 1, 1 - tail) / over
    return np.where(over > 0, low, 0.0), np.where(over > 0, high, np.inf)


def share_interval(part: ArrayLike, whole: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return the ends of the exact interval of a share, such as of attempts, for one count or for many."""
    some, total = np.broadcast_arrays(np.asarray(part, float), np.asarray(whole, float))
    tail = (1 - level) / 2
    # The incomplete beta function has no parameter 0: none has no lower bound, all no upper one.
    low = np.where(some > 0, betaincinv(np.maximum(some, 1), total - some + 1, tail), 0.0)
    high = np.where(some < total, betaincinv(some + 1, np.maximum(total - some, 1), 1 - tail), 1.0)
    return low, high


def quasi_interval(
    failures: ArrayLike, exposure: ArrayLike, factor: float, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Return the interval where variance is ``factor`` times the mean: as if so many failures were one."""
    assert factor >= 1
    return rate_interval(np.asarray(failures, float) / factor, np.asarray(exposure, float) / factor, level)


def dispersion(failures: ArrayLike, exposure: ArrayLike = 1.0) -> Dispersion | None:
    """Compare the scatter of counts per node with that of alike nodes; None: too little to compare.

    Pearson's statistic over its degrees of freedom, which is variance over mean where exposures are equal.
    """
    count, over = np.broadcast_arrays(np.asarray(failures, float), np.asarray(exposure, float))
    count, over = count[over > 0], over[over > 0]
    if count.size < 2 or count.sum() == 0:
        return None
    expected = over * (count.sum() / over.sum())
    statistic = float(((count - expected) ** 2 / expected).sum())
    free = count.size - 1
    return Dispersion(ratio=statistic / free, chance=float(chdtrc(free, statistic)), nodes=count.size)
