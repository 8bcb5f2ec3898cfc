"""Fully sharded data parallelism (FSDP2): ``torchrun --nproc-per-node 2 -m holdfast.lab.jobs.fsdp``."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from holdfast.lab.gpt import blocks, loss_of
from holdfast.lab.jobs.common import Seat, TrainStep, adamw, main


def build(seat: Seat) -> TrainStep:
    """Return the step of a model whose blocks are sharded over all ranks."""
    mesh = init_device_mesh("cpu", (seat.world_size,))
    for block in blocks(seat.model):
        fully_shard(block, mesh=mesh)
    fully_shard(seat.model, mesh=mesh)
    model = seat.model
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
