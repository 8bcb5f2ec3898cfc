"""A job that is mostly network: in every step each pair of ranks swaps a buffer while the others stand still.

No two transfers overlap, so the time that a rank spends with a peer is the time of that link.
"""

from __future__ import annotations

from itertools import combinations

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.lab.gpt import loss_of
from holdfast.lab.jobs.common import Seat, TrainStep, adamw, main
from holdfast.lab.jobs.dataparallel import average

BUFFER_BYTES = 1 << 20


def build(seat: Seat) -> TrainStep:
    """Return a step that trains a little and swaps buffers pair by pair."""
    parameters = list(seat.model.parameters())
    optimizer = adamw(iter(parameters))
    outgoing, incoming = torch.zeros(BUFFER_BYTES // 4), torch.zeros(BUFFER_BYTES // 4)

    def train_step(inputs: Tensor, targets: Tensor) -> float:
        optimizer.zero_grad()
        loss = loss_of(seat.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        average([parameter.grad for parameter in parameters if parameter.grad is not None], seat.world_size)
        for pair in combinations(range(seat.world_size), 2):
            dist.barrier()
            if seat.rank in pair:
                _swap(outgoing, incoming, rank=seat.rank, peer=sum(pair) - seat.rank)
        optimizer.step()
        return loss.item()

    return train_step


def _swap(outgoing: Tensor, incoming: Tensor, *, rank: int, peer: int) -> None:
    # One direction after the other: overlapping ones take once or twice as long, as it happens.
    if rank < peer:
        dist.send(outgoing, peer)
        dist.recv(incoming, peer)
    else:
        dist.recv(incoming, peer)
        dist.send(outgoing, peer)


if __name__ == "__main__":
    main(build)
