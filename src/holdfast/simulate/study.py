"""Every strategy on one job through one trace, and the words that go with the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.simulate.fitting import Fitted
from holdfast.simulate.models import Model
from holdfast.simulate.periods import Periods
from holdfast.simulate.run import Outcome, run
from holdfast.simulate.strategies import make_strategy, why_not


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy with its outcome, or the reason why there is none."""

    name: str
    modelled: str = ""
    outcome: Outcome | None = None
    missing: str = ""


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What was simulated, and what came of it."""

    model: Model
    microbatches: int
    memory: int | None
    fitted: Fitted
    results: tuple[Result, ...]

    @property
    def job(self) -> str:
        """The job in words; the number of micro-batches and the memory decide much of the result."""
        model = self.model
        memory = "no memory cap" if self.memory is None else f"room for {self.memory} on each worker"
        return (
            f"{model.title}, {model.workers} workers: pp {model.pp}, dp {model.dp}, {self.microbatches} "
            f"micro-batches, {memory}"
        )

    def share(self, outcome: Outcome) -> float:
        """Throughput as a share of 1F1B without faults."""
        return outcome.throughput / self.model.throughput


Watch = Callable[[str, float], None]
"""Called with the name of a strategy and the time that its trace has reached."""


def conduct(
    model: Model,
    periods: Periods,
    fitted: Fitted,
    names: Sequence[str],
    watch: Watch = lambda name, at_s: None,
) -> Study:
    """Run the strategies one after the other."""
    results = tuple(_conduct_one(name, model, periods, fitted, watch) for name in names)
    return Study(
        model=model, microbatches=periods.microbatches, memory=periods.memory, fitted=fitted, results=results
    )


def _conduct_one(name: str, model: Model, periods: Periods, fitted: Fitted, watch: Watch) -> Result:
    missing = why_not(name, model)
    if missing is not None:
        return Result(name=name, missing=missing)
    strategy = make_strategy(name, model, periods, fitted.mtbf_s)
    outcome = run(fitted, strategy, lambda at_s: watch(name, at_s))
    return Result(name=name, modelled=strategy.modelled, outcome=outcome)
