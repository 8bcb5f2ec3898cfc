"""Drop the pipeline: a pipeline that has lost a worker sits out until it is whole again, as with torchft."""

from __future__ import annotations

import msgspec

from holdfast.simulate.models import Model
from holdfast.simulate.strategies.base import Response, Situation, by_step, transfer_s

FAILURE_S = 5.04
"""Measured with torchft 0.2.0 and its default time-outs: how long the survivor's step took."""


class DropPipeline:
    """Trains on with whole pipelines only, and with a smaller batch."""

    name = "drop-pipeline"
    modelled = (
        "throughput x whole pipelines / pipelines; the others' live workers idle; 5.04 s per loss "
        "(measured with torchft's default time-outs) and the interrupted step; a pipeline that is whole "
        "again copies its state at 10 Gb/s while all wait; with no whole pipeline it stops, and no lost "
        "state is charged"
    )

    def __init__(self, model: Model) -> None:
        self._model = model
        self._whole: tuple[int, ...] = ()

    def begin(self, live: tuple[int, ...]) -> Response:
        here = frozenset(live)
        pp, dp = self._model.pp, self._model.dp
        self._whole = tuple(
            pipeline for pipeline in range(dp) if all(pipeline * pp + stage in here for stage in range(pp))
        )
        return by_step(self._model, self._model.throughput * len(self._whole) / dp)

    def change(self, situation: Situation) -> Response | None:
        before = self._whole
        made = self.begin(situation.live)
        if self._whole == before:
            return None
        if not all(pipeline in self._whole for pipeline in before):
            return msgspec.structs.replace(made, failure_s=FAILURE_S, loses="step")
        return msgspec.structs.replace(made, join_s=transfer_s(self._model))
