"""A data-parallel job with something wrong in it, or nothing: ``holdfast run … profiled/job.py``.

``--wrong KIND --ranks R ... --amount X`` says what, from step ``--at`` on. Records come from an object store
(``--store PORT``). With ``--emulated`` layers last as long as they are told to; without, they are computed,
one core for each rank. With ``--groups`` ranks gather what pairs of them share before every step.
"""

from __future__ import annotations

import argparse
import gc
import os
import queue
import random
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from holdfast.lab.device import current
from profiled.store import Client

OP_S = 0.008
BLOCKS = 4


class Wrong:
    """What is wrong with this rank now."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        self.rank = rank
        self.kind = options.wrong if rank in options.ranks else ""
        self.amount = options.amount
        self.step = 0
        self._at = options.at
        self.chance = random.Random(f"{options.seed}/{rank}")
        self._old: list[Any] = []

    def is_on(self, kind: str) -> bool:
        """Say whether this is wrong now."""
        return self.kind == kind and self.step >= self._at

    def make_garbage(self) -> None:
        """Make many objects, as careless code does: Python looks for cycles when it thinks it is time."""
        if self.is_on("gc"):
            if not self._old:  # What lives for long is what makes each collection long.
                self._old = [[None] for _ in range(int(3_000_000 * self.amount))]
            if self.chance.random() < 0.25:  # Each rank at its own time.
                self._old = [[None] for _ in self._old]


class Records(Dataset[Tensor]):
    """Records of an object store, each enough for some rows of a batch."""

    def __init__(self, store: Client, wrong: Wrong, width: int, rows: int) -> None:
        self._store = store
        self._wrong = wrong
        self._width = width
        self._rows = rows

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        record = torch.frombuffer(self._store.fetch(index), dtype=torch.uint8)[: self._width].float()
        record = record.expand(self._rows, -1)
        if self._wrong.is_on("copies"):
            self._stage(record)
        return record / 255

    def _stage(self, record: Tensor) -> None:
        """Copy far more than is needed, as a loader with too many workers does."""
        until_s = time.monotonic() + self._wrong.amount
        staging = torch.empty(1 << 20)
        while time.monotonic() < until_s:
            staging.copy_(record.new_empty(1 << 20))


class Block(nn.Module):
    """A layer."""

    def __init__(self, width: int, wrong: Wrong) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self._wrong = wrong

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute, and where that is wrong, think about it in Python for long."""
        if self._wrong.is_on("forward"):
            self._think()
        if self._wrong.is_on("throttled"):
            current().slowdown = self._wrong.amount if self._wrong.chance.random() < 0.5 else 1.0
        return torch.relu(self.linear(inputs))

    def _think(self) -> None:
        until_s = time.monotonic() + self._wrong.amount
        count = 0
        while time.monotonic() < until_s:
            for _ in range(20_000):
                count += 1


def main() -> None:
    """Train."""
    options = parse()
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    if not options.emulated:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    wrong = Wrong(options, rank)
    model = nn.Sequential(*(Block(options.width, wrong) for _ in range(BLOCKS)))
    if options.emulated:
        current().op_s = OP_S
        for block in model:
            current().attach(block)
    train(options, DistributedDataParallel(model), wrong)
    dist.destroy_process_group()
    gc.collect()


def train(options: argparse.Namespace, model: nn.Module, wrong: Wrong) -> None:
    """Run the loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    data = Records(Client(options.store, wrong.rank), wrong, options.width, options.batch)
    batches = forever(DataLoader(data, batch_size=None))
    pair = pair_group(wrong.rank) if options.groups else None
    for _ in range(options.steps):
        if wrong.kind == "lengths" and options.emulated:
            # All ranks have long and short sequences, some more than others: the device is busy accordingly.
            mean = 1 + wrong.amount * (wrong.rank / max(1, dist.get_world_size() - 1) - 0.5)
            current().op_s = OP_S * max(0.3, wrong.chance.gauss(mean, 0.1))
        inputs = next(batches)
        if pair is not None:
            share(pair, options.share)
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wrong.step += 1
        wrong.make_garbage()
        if wrong.is_on("stuck"):
            full: queue.Queue[int] = queue.Queue(maxsize=1)
            full.put(1)
            full.put(2)


def pair_group(rank: int) -> dist.ProcessGroup:
    """Return the group of this rank and its neighbour."""
    size = dist.get_world_size()
    groups = [
        dist.new_group([first, first + 1], group_desc=f"shard_{first // 2}") for first in range(0, size, 2)
    ]
    found = groups[rank // 2]
    assert isinstance(found, dist.ProcessGroup)
    return found


def share(group: dist.ProcessGroup, count: int) -> None:
    """Gather what both have."""
    mine = torch.ones(count)
    dist.all_gather([torch.empty(count), torch.empty(count)], mine, group=group)


def forever(loader: DataLoader[Tensor]) -> Iterator[Tensor]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--store", type=int, required=True)
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--share", type=int, default=1 << 18, help="floats that each rank of a pair gives")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wrong", default="")
    parser.add_argument("--ranks", type=int, nargs="*", default=[])
    parser.add_argument("--amount", type=float, default=0.0)
    parser.add_argument("--at", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
