"""Pipeline parallelism, one stage per rank, over plain sends and receives (GPipe).

All micro-batches go forward, then all go backward; every rank reads the same batch, of which the first
stage uses the inputs and the last the targets.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast.lab.gpt import loss_of, stage
from holdfast.lab.jobs.common import Seat, TrainStep, adamw, main

MICROBATCHES = 4


class Stage:
    """One rank's share of the model, and the messages to the ranks beside it."""

    def __init__(self, module: nn.Module, *, rank: int, world_size: int, width: int) -> None:
        self.module = module
        self.before = rank - 1 if rank > 0 else None
        self.after = rank + 1 if rank < world_size - 1 else None
        self._width = width
        self._sends: list[tuple[dist.Work | None, Tensor]] = []

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return what this stage received and what it made of it; the last stage makes the loss."""
        received = inputs if self.before is None else self._receive((*inputs.shape, self._width), self.before)
        output: Tensor = self.module(received)
        if self.after is None:
            return received, loss_of(output, targets) / MICROBATCHES
        self._send(output.detach(), self.after)
        return received, output

    def backward(self, received: Tensor, output: Tensor) -> None:
        """Run one micro-batch back through this stage."""
        gradient = None if self.after is None else self._receive(tuple(output.shape), self.after).detach()
        output.backward(gradient)  # type: ignore[no-untyped-call]
        if self.before is not None:
            assert received.grad is not None
            self._send(received.grad, self.before)

    def finish(self) -> None:
        """Wait for the sends of the step; their buffers live until then."""
        for work, _ in self._sends:
            if work is not None:
                work.wait()
        self._sends.clear()

    def _send(self, tensor: Tensor, rank: int) -> None:
        self._sends.append((dist.isend(tensor, rank), tensor))

    def _receive(self, shape: tuple[int, ...], rank: int) -> Tensor:
        buffer = torch.empty(shape)
        dist.recv(buffer, rank)
        return buffer.requires_grad_()


def build(seat: Seat) -> TrainStep:
    """Return the step of this rank's stage; the loss comes back to all ranks from the last one."""
    module = stage(seat.model, seat.rank, seat.world_size)
    part = Stage(module, rank=seat.rank, world_size=seat.world_size, width=seat.options.width)
    optimizer = adamw(module.parameters())

    def train_step(inputs: Tensor, targets: Tensor) -> float:
        optimizer.zero_grad()
        pairs = zip(inputs.chunk(MICROBATCHES), targets.chunk(MICROBATCHES), strict=True)
        passed = [part.forward(x, y) for x, y in pairs]
        for received, output in passed:
            part.backward(received, output)
        part.finish()
        total = (
            sum((output.detach() for _, output in passed), torch.zeros(())) if part.after is None else None
        )
        loss = torch.zeros(()) if total is None else total
        dist.broadcast(loss, seat.world_size - 1)
        optimizer.step()
        return loss.item()

    return train_step


if __name__ == "__main__":
    main(build, is_data_shared=True)
