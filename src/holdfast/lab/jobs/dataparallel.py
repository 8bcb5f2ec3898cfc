"""Data parallelism with one explicit all-reduce per step: own time and waiting time separate exactly."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.lab.gpt import loss_of
from holdfast.lab.jobs.common import Seat, TrainStep, adamw, main


def build(seat: Seat) -> TrainStep:
    """Return a step that averages all gradients in one flat buffer."""
    parameters = list(seat.model.parameters())
    optimizer = adamw(iter(parameters))

    def train_step(inputs: Tensor, targets: Tensor) -> float:
        optimizer.zero_grad()
        loss = loss_of(seat.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        average([parameter.grad for parameter in parameters if parameter.grad is not None], seat.world_size)
        optimizer.step()
        return loss.item()

    return train_step


def average(gradients: list[Tensor], world_size: int) -> None:
    """Replace the gradients by their mean over all ranks."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= world_size
    for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


if __name__ == "__main__":
    main(build)
