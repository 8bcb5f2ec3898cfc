"""Plain data parallelism: ``torchrun --nproc-per-node 2 -m holdfast.lab.jobs.ddp``."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from holdfast.lab.jobs.common import Seat, TrainStep, main, plain_step


def build(seat: Seat) -> TrainStep:
    """Return the step of a DDP-wrapped model."""
    return plain_step(DistributedDataParallel(seat.model))


if __name__ == "__main__":
    main(build)
