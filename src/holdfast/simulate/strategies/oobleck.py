"""Oobleck (SOSP'23, arXiv 2309.08125): pipeline templates for any number of nodes."""

from __future__ import annotations

import msgspec

from holdfast.simulate.models import Model
from holdfast.simulate.strategies.base import Response, Situation, by_step

MEASURED_REMOVE_S = 57.0
MEASURED_ADD_S = 100.0
"""Of a 6.7B model on 32 GPUs, measured by others (TrainMover, OSDI'26); adding took more than this."""


class Oobleck:
    """Runs at its published throughput for the number of nodes, after a short pause at every change."""

    name = "oobleck"

    def __init__(self, model: Model) -> None:
        self._model = model
        self._remove_s = self._add_s = model.oobleck_pause_s

    @property
    def modelled(self) -> str:
        return (
            "throughput by number of nodes and pause at every change from its artifact "
            f"({self._model.oobleck_pause_s:g} s for this model); the interrupted step is redone"
        )

    def begin(self, live: tuple[int, ...]) -> Response:
        return by_step(self._model, self._model.oobleck.at(len(live)))

    def change(self, situation: Situation) -> Response | None:
        made = self.begin(situation.live)
        if situation.left:
            return msgspec.structs.replace(made, failure_s=self._remove_s, loses="step")
        return msgspec.structs.replace(made, join_s=self._add_s)


class OobleckMeasured(Oobleck):
    """The same with the pauses that others measured."""

    name = "oobleck-measured"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._remove_s, self._add_s = MEASURED_REMOVE_S, MEASURED_ADD_S

    @property
    def modelled(self) -> str:
        return (
            f"as oobleck, but pauses as measured by others: {MEASURED_REMOVE_S:g} s to remove a machine, "
            f"{MEASURED_ADD_S:g} s to add one (TrainMover, OSDI'26: 6.7B on 32 GPUs)"
        )
