"""Data parallelism whose ranks take as many micro-batches as they have time for: ``holdfast.Shares``.

``--batch`` is the batch of all ranks, a micro-batch being one row of it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.lab.gpt import loss_of
from holdfast.lab.jobs.common import Seat, TrainStep, adamw, main


def build(seat: Seat) -> TrainStep:
    """Return a step of the DDP-wrapped model with gradients that add up over micro-batches."""
    model = DistributedDataParallel(seat.model)
    optimizer = adamw(model.parameters())
    shares = holdfast.Shares(seat.options.batch // seat.world_size)

    def train_step(inputs: Tensor, targets: Tensor) -> float:
        total = torch.zeros(1)
        for number in shares:
            rows = slice(number, number + 1)
            with shares.sync(model):
                loss = loss_of(model(inputs[rows]), targets[rows]) * shares.scale
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        return total.item() / seat.world_size

    return train_step


if __name__ == "__main__":
    main(build, is_data_shared=True)
