"""What the demo jobs share: options, process group, data, the loop that prints.

A job gives ``main`` a function that builds one training step; the rest is the same for all of them.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from holdfast.lab import gpt
from holdfast.lab.data import Tokens, token_file
from holdfast.lab.device import LABEL, current


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of a demo job."""

    steps: int
    step_every: int
    device: str
    op_ms: float
    width: int
    layers: int
    batch: int
    seed: int
    pin: bool


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where this worker sits, and the model it starts from."""

    rank: int
    world_size: int
    model: nn.Sequential
    options: Options


TrainStep = Callable[[Tensor, Tensor], float]
"""Inputs and targets in, loss out; ends with one optimizer update."""


def main(build: Callable[[Seat], TrainStep], *, is_data_shared: bool = False) -> None:
    """Train as the command line says; ``is_data_shared`` gives all ranks the same batch."""
    options = parse(sys.argv[1:])
    if options.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        seat = _take_seat(options)
        _train(seat, build(seat), _batches(seat, is_data_shared=is_data_shared))
    finally:
        dist.destroy_process_group()
        # Until it is collected, the group keeps its threads; gloo's abort an interpreter that ends first.
        gc.collect()


def parse(argv: list[str]) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-every", type=int, default=10, help="print every so many steps")
    parser.add_argument("--device", choices=["cpu", "emulated"], default="cpu")
    parser.add_argument("--op-ms", type=float, default=5.0, help="forward of a block on an emulated device")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pin", action="store_true", help="one core per local rank")
    return Options(**vars(parser.parse_args(argv)))


def adamw(parameters: Iterator[nn.Parameter]) -> torch.optim.AdamW:
    """Return the optimizer that all demo jobs use."""
    return torch.optim.AdamW(parameters, lr=3e-3, fused=True)


def plain_step(model: nn.Module) -> TrainStep:
    """Return the usual step: forward, backward, update."""
    optimizer = adamw(model.parameters())

    def train_step(inputs: Tensor, targets: Tensor) -> float:
        loss = gpt.loss_of(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return train_step


def _take_seat(options: Options) -> Seat:
    torch.manual_seed(options.seed)
    model = gpt.build(width=options.width, layers=options.layers)
    if options.device == "emulated":
        device = current()
        device.op_s = options.op_ms / 1000
        for block in gpt.blocks(model):
            device.attach(block)
    return Seat(rank=dist.get_rank(), world_size=dist.get_world_size(), model=model, options=options)


def _batches(seat: Seat, *, is_data_shared: bool) -> Iterator[Tensor]:
    """Yield batches for ever, the ranks' shares being disjoint unless they share."""
    tokens = Tokens(token_file(seat.options.seed))
    replicas, rank = (1, 0) if is_data_shared else (seat.world_size, seat.rank)
    sampler: DistributedSampler[Tensor] = DistributedSampler(tokens, replicas, rank, seed=seat.options.seed)
    loader = DataLoader(tokens, batch_size=seat.options.batch, sampler=sampler, drop_last=True)
    while True:
        yield from loader


def _train(seat: Seat, train_step: TrainStep, batches: Iterator[Tensor]) -> None:
    if seat.rank == 0 and seat.options.device == "emulated":
        _say(f"{LABEL}: {seat.options.op_ms:g} ms per block forward, twice that backward")
    for step in range(seat.options.steps):
        started_s = time.monotonic()
        tokens = next(batches)
        loss = train_step(tokens[:, :-1], tokens[:, 1:])
        last = step == seat.options.steps - 1
        if seat.rank == 0 and (step % seat.options.step_every == 0 or last):
            _say(f"step {step} loss {loss:.6f} {1000 * (time.monotonic() - started_s):.0f} ms")


def _say(line: str) -> None:
    # One write per line: lines of several ranks never mix.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
