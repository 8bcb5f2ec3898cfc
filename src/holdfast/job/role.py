"""One stage as a worker holds it: the module, its optimizer, how far they are; workers can change theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from holdfast.job import build
from holdfast.job.flow import Flow
from holdfast.job.stage import Loss, Stage
from holdfast.job.state import State
from holdfast.job.sums import ExactSum, FloatSum, GradientSum


@dataclass
class Role:
    """What belongs to a stage, and goes when another one is taken."""

    stage: Stage
    state: State
    sums: GradientSum
    flow: Flow | None = None
    """None until it is known what travels between the stages."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a script gave, from which any worker can make any stage."""

    stages: Sequence[Callable[[], nn.Module]]
    loss: Loss
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    scheduler: Callable[[torch.optim.Optimizer], Any] | None
    max_norm: float | None
    is_exact: bool
    terms: int
    """Micro-batches of a step, of all pipelines."""
    autocast: Any
    seed: int
    device: torch.device

    def make(self, number: int) -> Role:
        """Return a stage as it is at the start."""
        module = build.build(self.stages, number, seed=self.seed, device=self.device)
        stage = Stage(
            module,
            number,
            loss=self.loss if number == len(self.stages) - 1 else None,
            scale=1.0 / self.terms,
            autocast=self.autocast,
        )
        parameters = stage.parameters
        sums: GradientSum = ExactSum(parameters, terms=self.terms) if self.is_exact else FloatSum(parameters)
        optimizer = self.optimizer(parameters)
        scheduler = self.scheduler(optimizer) if self.scheduler else None
        return Role(stage, State(parameters, optimizer, scheduler, sums, max_norm=self.max_norm), sums)
