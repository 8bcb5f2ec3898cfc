"""Two lines to measure the others by: no faults at all, and the share of the workers that is left."""

from __future__ import annotations

from holdfast.simulate.models import Model
from holdfast.simulate.strategies.base import Response, Situation, by_step


class FaultFree:
    """Nobody is ever missing."""

    name = "fault-free"
    modelled = "1F1B with all workers, all the time: the best of the other systems' profiles at full size"

    def __init__(self, model: Model) -> None:
        self._model = model

    def begin(self, live: tuple[int, ...]) -> Response:
        return by_step(self._model, self._model.throughput)

    def change(self, situation: Situation) -> Response | None:
        return None


class FaultScaled:
    """As fast as the share of workers that is alive, at once and for nothing."""

    name = "fault-scaled"
    modelled = "fault-free x live / total, no pauses: an ideal that loses what died and nothing else"

    def __init__(self, model: Model) -> None:
        self._model = model

    def begin(self, live: tuple[int, ...]) -> Response:
        return by_step(self._model, self._model.throughput * len(live) / self._model.workers)

    def change(self, situation: Situation) -> Response | None:
        return self.begin(situation.live)
