"""CPU time of whole steps, with hooks that count and hooks that pass by, in turn; prints JSON.

The hooks are installed once and cannot be taken out of torch again, so the steps without us are those of a
stopped tally: what remains of a hook then is one comparison.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from holdfast.job.observer import Observer

STEPS, ROUNDS = 1, 401


def main() -> None:
    """Measure each loop as one of two ranks."""
    torch.set_num_threads(1)
    observer = Observer(Path(tempfile.mkdtemp()), rank=0)
    observer.install()
    rank, store = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    made = {"plain loop": plain, "DDP": ddp, "FSDP2": fsdp}
    costs = {}
    for name, make in made.items():
        costs[name] = cost(observer, make())
        gc.collect()  # A DDP module that lives on would be read in the steps of the next.
    dist.destroy_process_group()
    json.dump({"costs": costs, "errors": observer.errors}, sys.stdout)


def plain() -> nn.Module:
    """A small model, so that little but hooks is left to see."""
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))


def ddp() -> nn.Module:
    """The same, replicated."""
    return DistributedDataParallel(plain())


def fsdp() -> nn.Module:
    """Ten layers, each gathered twice and scattered once in a step."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(10)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model


def cost(observer: Observer, model: nn.Module) -> dict[str, float]:
    """Return the CPU time of a step without us and what we add to it, and how many calls it makes."""
    run = _stepper(model)
    tally, thread = observer.tally, observer.tally.thread
    _cpu_us(run)
    rounds = []
    gc.disable()
    for _ in range(ROUNDS):
        tally.thread = -1
        before = _cpu_us(run)
        tally.thread = thread
        rounds.append((before, _cpu_us(run)))
    gc.enable()
    gc.collect()
    calls = tally.calls
    run()
    least = [min(each) for each in zip(*rounds, strict=True)]
    return {
        "best_us": least[1] - least[0],
        "step_us": statistics.median(before for before, _ in rounds),
        "more_us": statistics.median(after - before for before, after in rounds),
        "calls": float(tally.calls - calls),
    }


def _stepper(model: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = _forever(DataLoader(TensorDataset(torch.zeros(64, 16)), batch_size=1))

    def step() -> None:
        (x,) = next(batches)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def _forever(loader: DataLoader[tuple[torch.Tensor, ...]]) -> Iterator[tuple[torch.Tensor, ...]]:
    while True:
        yield from loader


def _cpu_us(step: Callable[[], None]) -> float:
    began_ns = time.thread_time_ns()
    for _ in range(STEPS):
        step()
    return (time.thread_time_ns() - began_ns) / STEPS / 1e3


if __name__ == "__main__":
    main()
