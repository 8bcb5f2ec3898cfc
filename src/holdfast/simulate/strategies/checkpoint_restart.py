"""Checkpoint and restart: after a loss, start again from the checkpoint with the whole pipelines that fit."""

from __future__ import annotations

import math

import msgspec

from holdfast.simulate.models import Model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies.base import Response, Situation, step_s


class CheckpointRestart:
    """Keeps the layout and the batch; workers beyond the last whole pipeline wait as spares."""

    name = "checkpoint-restart"
    modelled = (
        "1F1B on as many whole pipelines as live workers make, batch unchanged, the rest are spares; "
        "restart and checkpoint times are Varuna's from Oobleck's artifact; the interval is "
        "Young/Daly's best, sqrt(2 x checkpoint x mean time between losses), with that mean known from "
        "the whole trace; it grows when a pipeline more fits, after a checkpoint"
    )

    def __init__(self, model: Model, periods: Periods, mtbf_s: float | None) -> None:
        self._model = model
        self._periods = periods
        self._interval_s = math.sqrt(2 * model.checkpoint_s * mtbf_s) if mtbf_s else math.inf
        self._used: tuple[int, ...] = ()

    def begin(self, live: tuple[int, ...]) -> Response:
        pipelines = len(live) // self._model.pp
        self._used = live[: pipelines * self._model.pp]
        if not pipelines:
            return Response(throughput=0.0)
        throughput = self._throughput(pipelines)
        step = step_s(self._model, throughput)
        if math.isinf(self._interval_s):
            return Response(throughput=throughput, unit_s=step)
        return Response(
            throughput=throughput, unit_s=max(step, self._interval_s), write_s=self._model.checkpoint_s
        )

    def change(self, situation: Situation) -> Response | None:
        was = self._used
        if any(worker in was for worker in situation.left):
            return self._restart(situation, "failure_s")
        if len(situation.live) // self._model.pp > len(was) // self._model.pp:
            return self._restart(situation, "join_s")
        return None

    def _restart(self, situation: Situation, account: str) -> Response:
        was_stopped = not self._used
        made = self.begin(situation.live)
        pause_s = self._model.restart_s - self._model.checkpoint_s if made.throughput else 0.0
        made = msgspec.structs.replace(made, **{account: pause_s})
        if account == "failure_s":
            return msgspec.structs.replace(made, loses="unit")
        return msgspec.structs.replace(made, checkpoint_s=0.0 if was_stopped else self._model.checkpoint_s)

    def _throughput(self, pipelines: int) -> float:
        """Fewer pipelines share the same micro-batches: more for each, and a smaller share of bubbles."""
        each = math.ceil(self._model.dp * self._periods.microbatches / pipelines)
        return self._model.throughput * self._periods.one_f_one_b / (3.0 * (each + self._model.pp - 1))
