"""The workload trained by ``holdfast.Pipeline``, with all that it does under ``holdfast run``: status page,
checks for what is not finite, tallies, and in staggered mode the shadow of its state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

import holdfast
from holdfast.lab import gpt
from stock.workload import BATCH, PP, Settings, Variant, build_stage, make_batches, optimizer_of


class Ours:
    """One rank's end of a pipeline, and what it lost."""

    def __init__(self, settings: Settings, variant: Variant) -> None:
        self._losses: list[holdfast.Loss] = []
        self._pipeline = holdfast.Pipeline(
            [partial(build_stage, settings, stage) for stage in range(PP)],
            loss=gpt.loss_of,
            optimizer=optimizer_of,
            data=data_of(settings),
            microbatches=settings.microbatches,
            exact=variant.exact,
            settings=holdfast.PipelineSettings(
                is_staggered=variant.is_staggered, fault_free=settings.schedule, seed=settings.seed
            ),
        )

    def step(self, number: int) -> None:
        """Train one step."""
        self._losses.append(self._pipeline.step())

    def finish(self) -> None:
        """Wait until all steps are final."""
        self._pipeline.settle()

    def losses(self) -> list[float]:
        """Return the losses of all steps."""
        return [loss.item() for loss in self._losses]

    def close(self) -> None:
        """Leave the job."""
        self._pipeline.close()


def data_of(settings: Settings) -> Callable[[int, int, int], tuple[Tensor, Tensor]]:
    """Return micro-batches out of batches that are ready."""
    batches = [make_batches(settings, pipeline) for pipeline in range(settings.dp)]

    def data(step: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = batches[pipeline][step % len(batches[pipeline])]
        rows = slice(microbatch * BATCH, (microbatch + 1) * BATCH)
        return inputs[rows], targets[rows]

    return data
