"""Fully sharded data parallelism (FSDP2): ``torchrun --nproc-per-node 2 -m holdfast.lab.jobs.fsdp``."""

from __future__ import annotations

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from holdfast.lab.gpt import blocks
from holdfast.lab.jobs.common import Seat, TrainStep, main, plain_step


def build(seat: Seat) -> TrainStep:
    """Return the step of a model whose blocks are sharded over all ranks."""
    mesh = init_device_mesh("cpu", (seat.world_size,))
    for block in blocks(seat.model):
        fully_shard(block, mesh=mesh)
    fully_shard(seat.model, mesh=mesh)
    return plain_step(seat.model)


if __name__ == "__main__":
    main(build)
