"""The workload trained by torch's own schedules, as a careful user writes it; none of our hooks is installed.

The loss is scaled by the number of all micro-batches, so that no gradient has to be divided. With more than
one pipeline the gradients go through one flat buffer and one all-reduce per step.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining.schedules import _PipelineSchedule, _PipelineScheduleRuntime

from holdfast.lab import gpt
from holdfast.plan.choose import choose
from holdfast.plan.problem import Problem
from stock.workload import (
    PP,
    Settings,
    build_stage,
    make_batches,
    optimizer_of,
)


class Theirs:
    """One rank's training loop; the default process group is there."""

    def __init__(self, settings: Settings) -> None:
        pipeline, self._number = divmod(int(os.environ["RANK"]), PP)
        self._losses: list[Tensor] = []
        module = build_stage(settings, self._number)
        self._parameters = list(module.parameters())
        self._optimizer = optimizer_of(self._parameters)
        self._batches = make_batches(settings, pipeline)
        pipelines = [[first * PP + stage for stage in range(PP)] for first in range(settings.dp)]
        stage = PipelineStage(
            module,
            self._number,
            PP,
            torch.device("cpu"),
            group=own_group(pipelines),
        )
        self._schedule = schedule_of(settings, stage)
        self._average = Average(self._parameters, settings.dp) if settings.dp > 1 else None
        self._scale = float(settings.dp)

    def step(self, number: int) -> None:
        """Train one step."""
        inputs, targets = self._batches[number % len(self._batches)]
        if self._number == 0:
            self._schedule.step(inputs, return_outputs=False)
        else:
            losses: list[Tensor] = []
            self._schedule.step(target=targets, losses=losses, return_outputs=False)
            self._losses.append(torch.stack([loss.detach() for loss in losses]).sum() * self._scale)
        if self._average is not None:
            self._average()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def finish(self) -> None:
        """Do nothing: a step that has returned is final."""

    def losses(self) -> list[float]:
        """Return the losses of all steps."""
        return [loss.item() for loss in self._losses]


class Average:
    """Adds up the gradients of the pipelines; afterwards they are views of the buffer."""

    def __init__(self, parameters: Sequence[nn.Parameter], dp: int) -> None:
        stages = [[pipeline * PP + stage for pipeline in range(dp)] for stage in range(PP)]
        self._group = own_group(stages)
        self._parameters = parameters
        self._flat = torch.zeros(sum(each.numel() for each in parameters))
        pieces = torch.split(self._flat, [each.numel() for each in parameters])
        self._views = [piece.view_as(each) for piece, each in zip(pieces, parameters, strict=True)]

    @torch.no_grad()
    def __call__(self) -> None:
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        torch._foreach_copy_(self._views, gradients)
        dist.all_reduce(self._flat, group=self._group)
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view


def own_group(all_ranks: list[list[int]]) -> dist.ProcessGroup:
    """Make all of these groups, as every rank must, and return the one that this rank is in."""
    made: list[dist.ProcessGroup] = [dist.new_group(ranks) for ranks in all_ranks]
    rank = dist.get_rank()
    return next(group for group, ranks in zip(made, all_ranks, strict=True) if rank in ranks)


def schedule_of(settings: Settings, stage: PipelineStage) -> _PipelineSchedule:
    """Return torch's 1F1B, or its runtime with the order of our zero-bubble plan."""
    count = settings.microbatches
    scale = 1.0 / (settings.dp * count)

    def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
        return gpt.loss_of(logits, targets) * scale

    if settings.schedule == "1f1b":
        return Schedule1F1B(stage, count, loss_fn=loss_of, scale_grads=False)
    runtime: _PipelineScheduleRuntime = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        [stage], count, loss_fn=loss_of, scale_grads=False
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_text(order_of(settings))
        runtime._load_csv(str(path), format="compute_only")
    return runtime


def order_of(settings: Settings) -> str:
    """Return the plan of one pipeline in torch's notation, a line per stage; all pipelines have the same."""
    problem = Problem(dp=settings.dp, pp=PP, microbatches=settings.microbatches)
    schedule = choose(problem, fault_free=settings.schedule)
    rows = [[f"{op.stage}{op.kind}{op.microbatch}" for op in order] for order in schedule.orders]
    for first in range(PP, len(rows), PP):
        if rows[first : first + PP] != rows[:PP]:
            raise ValueError(f"the pipelines of {schedule} differ; torch's runtime takes one order for all")
    return "\n".join(",".join(row) for row in rows[:PP]) + "\n"
