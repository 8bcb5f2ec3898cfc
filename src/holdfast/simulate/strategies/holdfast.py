"""Holdfast: the planner's adaptive schedule around the dead; roles change where the copying pays off."""

from __future__ import annotations

from holdfast.simulate.models import Model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies.base import Response, Situation, transfer_s
from holdfast.simulate.strategies.rerouting import PAUSES, Live, Rerouting


class Holdfast:
    """Plans for the pattern that is there, and moves workers only when that is worth the pause."""

    name = "holdfast"
    modelled = f"period of the adaptive plan; roles change where that pays for the copy; {PAUSES}"

    def __init__(self, model: Model, periods: Periods) -> None:
        self._model = model
        self._periods = periods
        self._rerouting = Rerouting(model, periods, self._throughput, self._pays)

    def begin(self, live: tuple[int, ...]) -> Response:
        return self._rerouting.begin(live)

    def change(self, situation: Situation) -> Response | None:
        return self._rerouting.change(situation)

    def _throughput(self, live: Live) -> float:
        return self._model.throughput * self._periods.one_f_one_b / self._periods.of(live)

    def _pays(self, now: Live, then: Live, horizon_s: float) -> bool:
        """Compare samples until the next change, taken to be as far away as the changes so far were apart."""
        slower, faster = self._throughput(now), self._throughput(then)
        return (faster - slower) * horizon_s > faster * transfer_s(self._model)
