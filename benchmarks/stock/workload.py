"""What both executors train: one definition, so that nothing else differs.

A step is a function of its number: batches are made before the clock starts, weights come from a seed.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec
import torch
from torch import Tensor, nn

from holdfast.lab import gpt

THEIRS = "torch"
PP = 2
WIDTH, LAYERS, BATCH, LENGTH = 128, 4, 4, 64
LEARNING_RATE = 1e-3
_BATCHES = 4
"""Different batches; they come round again."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which ours runs."""

    is_staggered: bool
    exact: bool

    @property
    def name(self) -> str:
        """What figures call it."""
        return ("staggered" if self.is_staggered else "synchronous") + (", exact" if self.exact else "")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison: what all contenders of a job train."""

    dp: int
    microbatches: int
    schedule: Literal["1f1b", "zero_bubble"]
    variants: list[Variant]
    """The ways in which ours takes part."""
    blocks: int
    """Turns of each contender."""
    steps: int
    """Measured in a turn."""
    seed: int = 0

    @property
    def world(self) -> int:
        """How many ranks take part."""
        return self.dp * PP


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank says at its end; by contender."""

    cpu_s: dict[str, list[float]]
    """User and system time of all its threads over the measured steps of each turn."""
    losses: dict[str, list[float]]
    """Of all steps; empty where the rank has none. With torch's schedules: those of the own pipeline."""


class Contender(Protocol):
    """One rank's part in one way of training."""

    def step(self, number: int) -> None:
        """Train one step."""

    def finish(self) -> None:
        """Wait until all steps are final."""

    def losses(self) -> list[float]:
        """Return the losses of all steps."""


def build_stage(settings: Settings, stage: int) -> nn.Module:
    """Return one stage of the model; the same weights for the same seed, whoever asks."""
    torch.manual_seed(settings.seed)
    return gpt.stage(gpt.build(width=WIDTH, layers=LAYERS), stage, PP)


def optimizer_of(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of a stage."""
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE)


def make_batches(settings: Settings, pipeline: int) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and targets of whole batches, all micro-batches of a pipeline one after the other."""
    generator = torch.Generator().manual_seed(settings.seed * 64 + pipeline)
    shape = (settings.microbatches * BATCH, 1)
    made = []
    for _ in range(_BATCHES):
        start = torch.randint(0, gpt.VOCABULARY, shape, generator=generator)
        stride = torch.randint(1, 4, shape, generator=generator)
        walk = (start + stride * torch.arange(LENGTH + 1)) % gpt.VOCABULARY
        made.append((walk[:, :-1].contiguous(), walk[:, 1:].contiguous()))
    return made
