"""CPU time of one call of what Holdfast wraps, with the wrapper and without, in turn; prints JSON."""

from __future__ import annotations

import gc
import inspect
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from holdfast.job.observer import Observer
from holdfast.job.timed import timed

ROUNDS, CALLS = 301, 200


def main() -> None:
    """Measure every kind of call in a process group of one rank."""
    folder = Path(tempfile.mkdtemp())
    observer = Observer(folder, rank=0)
    observer.install()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    costs = {name: cost_us(*pair) for name, pair in kinds(observer).items()}
    dist.destroy_process_group()
    json.dump({"costs": costs, "bytes": memory_bytes(), "errors": observer.errors}, sys.stdout)


Call = Callable[[], Any]


def kinds(observer: Observer) -> dict[str, tuple[Call, Call]]:
    """Return calls as they are and as they are watched, by name."""
    tensor, group, tally = torch.zeros(1024), dist.group.WORLD, observer.tally
    plain = inspect.unwrap(dist.all_reduce)

    def nothing(tensor: torch.Tensor, group: Any = None) -> None:
        return None

    watched_nothing = timed(nothing, tally, observer._comms._finder(nothing, "all_reduce"))
    batches, watched_batches = _loaders()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    return {
        "a wrapper alone": (lambda: nothing(tensor, group), lambda: watched_nothing(tensor, group)),
        "all_reduce": (lambda: plain(tensor), lambda: dist.all_reduce(tensor)),
        "a batch of a loader": (lambda: next(batches), lambda: next(watched_batches)),
        "an update, with the end of a step": (
            lambda: None,
            lambda: observer.mark_update(optimizer, (), {}),
        ),
    }


def _loaders() -> tuple[Iterator[Any], Iterator[Any]]:
    """Return iterators of the same long loader: one calls the original method, one ours."""
    loader = DataLoader(TensorDataset(torch.zeros(10**6)), batch_size=1)
    mine, theirs = iter(loader), iter(loader)
    original = inspect.unwrap(type(mine).__next__)
    return iter(lambda: original(mine), None), iter(theirs.__next__, None)


def cost_us(plain: Call, watched: Call) -> dict[str, float]:
    """Return the CPU time of a call and what we add to it, by rounds of both kinds in turn."""
    rounds = []
    gc.disable()
    for _ in range(ROUNDS):
        rounds.append((_cpu_us(plain), _cpu_us(watched)))
    gc.enable()
    least = [min(each) for each in zip(*rounds, strict=True)]
    return {
        "plain_us": statistics.median(one for one, _ in rounds),
        "more_us": statistics.median(other - one for one, other in rounds),
        "best_us": least[1] - least[0],
    }


def _cpu_us(call: Call) -> float:
    began_ns = time.thread_time_ns()
    for _ in range(CALLS):
        call()
    return (time.thread_time_ns() - began_ns) / CALLS / 1e3


def memory_bytes() -> dict[str, int]:
    """Return what an observer holds: its files, which are mapped, and its Python objects."""
    import tracemalloc

    folder = Path(tempfile.mkdtemp())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    observer = Observer(folder, rank=1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for _ in range(2000):
        observer._cycle.mark_batch(-1)
        observer.mark_update(optimizer, (), {})
    gc.collect()
    objects = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    files = {path.suffix[1:]: path.stat().st_size for path in folder.iterdir()}
    return {**files, "objects": objects}


if __name__ == "__main__":
    main()
