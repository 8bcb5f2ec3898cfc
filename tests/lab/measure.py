"""Before, during and after a fault, in medians over steps of one run: absolute times prove nothing here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from holdfast.faults import Fault
from holdfast.lab.fork import Result
from holdfast.lab.recorder import StepRow


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity in the three phases of a fault."""

    before: float
    during: float
    after: float

    @property
    def growth(self) -> float:
        """How much more there was under the fault than in the mean of the phases beside it."""
        return self.during - (self.before + self.after) / 2


def phases(values: Sequence[float], fault: Fault, *, beside: int = 6) -> Phases:
    """Return the medians under a fault and in the steps beside it; the steps at its edges do not count."""
    assert fault.for_steps is not None
    start, end = fault.at_step, fault.at_step + fault.for_steps
    return Phases(
        before=statistics.median(values[start - beside : start]),
        during=statistics.median(values[start + 1 : end]),
        after=statistics.median(values[end + 1 : end + 1 + beside]),
    )


def of_rank(
    result: Result, rank: int, quantity: Callable[[StepRow], float], fault: Fault, *, beside: int = 6
) -> Phases:
    """Return a quantity of a rank's rows in the phases of a fault."""
    return phases([quantity(row) for row in result.rows[rank]], fault, beside=beside)


def of_link(result: Result, ends: tuple[int, int], fault: Fault, *, beside: int = 6) -> Phases:
    """Return the seconds that two ranks spent with each other, as the one that spent more saw it."""
    a, b = ends
    pairs = zip(result.rows[a], result.rows[b], strict=True)
    seconds = [max(left.link_s.get(b, 0.0), right.link_s.get(a, 0.0)) for left, right in pairs]
    return phases(seconds, fault, beside=beside)
