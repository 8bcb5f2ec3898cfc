"""What the oracle is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.plan.timing import Timed

TOLERANCE = 1e-6
"""What floats may lose."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for, and for how long."""

    objective: Literal["period", "makespan"] = "period"
    backward: Literal["split", "coupled"] = "split"
    """Split: I and W, the W any time after its I. Coupled: B only."""
    routes: Mapping[tuple[int, int, int], int] = msgspec.field(default_factory=dict)
    """Who must do what: (pipeline, micro-batch, stage) to a pipeline. The others are free."""
    time_limit_s: float = 60.0
    threads: int = 1
    hint: Timed | None = None
    """A valid answer to start from."""
    at_most: float | None = None
    """Look only for schedules at least as good as this."""

    @property
    def is_period(self) -> bool:
        return self.objective == "period"

    @property
    def kinds(self) -> str:
        return "FIW" if self.backward == "split" else "FB"

    def value(self, timed: Timed) -> float:
        """What is minimised."""
        return timed.period if self.is_period else timed.makespan


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The best schedule that was found, and how good one could be."""

    best: float | None
    """None if there was none in time, or none as good as was asked for."""
    bound: float
    """Proven: no schedule is better, on the grid or off it."""
    timed: Timed | None
    seconds: float = 0.0

    @property
    def is_optimal(self) -> bool:
        return self.best is not None and self.best <= self.bound * (1 + TOLERANCE)
