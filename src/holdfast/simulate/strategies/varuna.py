"""Varuna (EuroSys'22): checkpoint, and restart with another layout whenever nodes are lost."""

from __future__ import annotations

import msgspec

from holdfast.simulate.models import Model
from holdfast.simulate.strategies.base import Response, Situation, step_s

STEPS_PER_CHECKPOINT = 10


class Varuna:
    """Morphs the job to the nodes that are left, from the last checkpoint."""

    name = "varuna"
    modelled = (
        "throughput by number of nodes, restart and checkpoint (after the first and every 10 steps) "
        "from Oobleck's artifact; a loss throws it back to the last checkpoint; as there, newcomers "
        "wait for the next restart, and the restart is charged without the checkpoint that is part of it"
    )

    def __init__(self, model: Model) -> None:
        self._model = model
        self._used: tuple[int, ...] = ()

    def begin(self, live: tuple[int, ...]) -> Response:
        throughput = self._model.varuna.at(len(live))
        self._used = live if throughput else ()
        if not throughput:
            return Response(throughput=0.0)
        step = step_s(self._model, throughput)
        return Response(
            throughput=throughput,
            unit_s=STEPS_PER_CHECKPOINT * step,
            first_s=step,
            write_s=self._model.checkpoint_s,
        )

    def change(self, situation: Situation) -> Response | None:
        was_stopped = not self._used
        if not was_stopped and not any(worker in self._used for worker in situation.left):
            return None
        made = self.begin(situation.live)
        pause_s = self._model.restart_s - self._model.checkpoint_s if made.throughput else 0.0
        if was_stopped:
            return msgspec.structs.replace(made, join_s=pause_s)
        return msgspec.structs.replace(made, failure_s=pause_s, loses="unit")
