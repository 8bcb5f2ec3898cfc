"""Plain data parallelism: ``torchrun --nproc-per-node 2 -m holdfast.lab.jobs.ddp``."""

from __future__ import annotations

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from holdfast.lab.gpt import loss_of
from holdfast.lab.jobs.common import Seat, TrainStep, adamw, main


def build(seat: Seat) -> TrainStep:
    """Return the step of a DDP-wrapped model."""
    model = DistributedDataParallel(seat.model)
    optimizer = adamw(model.parameters())

    def train_step(inputs: Tensor, targets: Tensor) -> float:
        loss = loss_of(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return train_step


if __name__ == "__main__":
    main(build)
