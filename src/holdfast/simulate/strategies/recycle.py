"""ReCycle (SOSP'24, arXiv 2405.14009) as published: failures are normalized, then round-robin re-routing."""

from __future__ import annotations

from holdfast.simulate.models import Model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies.base import Response, Situation
from holdfast.simulate.strategies.rerouting import PAUSES, Live, Rerouting


class ReCycle:
    """1F1B while nobody is dead; else re-routing with decoupled backward and staggered optimizer."""

    name = "recycle"
    modelled = (
        "1F1B without faults, else our planner's period in mode staggered (round robin, decoupled backward, "
        "staggered optimizer) after failure normalization at every change; its pauses are not published and "
        f"taken to be Holdfast's: {PAUSES}"
    )

    def __init__(self, model: Model, periods: Periods) -> None:
        self._model = model
        self._periods = periods
        self._rerouting = Rerouting(model, periods, self._throughput, lambda now, then, horizon_s: True)

    def begin(self, live: tuple[int, ...]) -> Response:
        return self._rerouting.begin(live)

    def change(self, situation: Situation) -> Response | None:
        return self._rerouting.change(situation)

    def _throughput(self, live: Live) -> float:
        is_healthy = min(live) == self._model.dp
        period = self._periods.one_f_one_b if is_healthy else self._periods.of(live, "staggered")
        return self._model.throughput * self._periods.one_f_one_b / period
