"""What all workers' profiles come to: three numbers for every function and worker, as columns."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.observe.kineto import Ints, Kind

Shares = npt.NDArray[np.float32]


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """A row for every function, a column for every worker; a function that a worker does not have is 0."""

    names: list[str]
    kinds: list[Kind]
    ranks: Ints
    beta: Shares
    """Share of the time that it is on the critical path."""
    mu: Shares
    """Mean use of its resource."""
    sigma: Shares
    """Spread of that use."""

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.ranks))
        assert len(self.kinds) == shape[0]
        assert all(each.shape == shape for each in (self.beta, self.mu, self.sigma)), shape
