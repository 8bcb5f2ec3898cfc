"""A job of two ranks that trains again and again, each time with another piece of the observer broken."""

from __future__ import annotations

import gc
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from holdfast.job import attach
from holdfast.job.channels import Channels
from holdfast.job.cycle import Cycle
from holdfast.job.linkpage import LinkPage
from holdfast.job.ring import RingWriter
from holdfast.job.tally import Tally
from pairs import home, join_group, rank, tell

PARTS = (Tally, Channels, Cycle, RingWriter, LinkPage)
RANDOM_ROUNDS = 4


class BrokenError(Exception):
    """What the broken pieces raise; nobody may ever see it."""


def methods() -> list[tuple[type, str]]:
    """Return every method that can be broken."""
    return [(part, name) for part in PARTS for name, each in vars(part).items() if _is_method(name, each)]


def _is_method(name: str, each: object) -> bool:
    return callable(each) and not name.startswith("__")


def train(model: nn.Module, dataset: TensorDataset) -> list[float]:
    """Train for two short epochs with all that is watched: data, calls, garbage, saving, a new optimizer."""
    losses = []
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for (x,) in DataLoader(dataset, batch_size=8):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            work = dist.all_reduce(total, async_op=True)
            assert work is not None
            work.wait()
            losses.append(float(total.item()))
        torch.save(losses, home() / f"losses_{rank()}.pt")
        gc.collect(0)
    return losses


def fresh() -> tuple[nn.Module, TensorDataset]:
    """Return the model and the data that every round begins with."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return DistributedDataParallel(model), TensorDataset(torch.randn(32, 8))


def rounds() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what to break, one thing after the other, and then anything at any time."""
    for part, name in methods():
        yield f"{part.__name__}.{name}", partial(_break, part, name)
    for seed in range(RANDOM_ROUNDS):
        yield f"random {seed}", partial(_break_at_random, seed)
    yield "folder removed", lambda: shutil.rmtree(home() / "rings", ignore_errors=True)


def _break(part: type, name: str) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise BrokenError(f"{part.__name__}.{name}")

    setattr(part, name, fail)


def _break_at_random(seed: int) -> None:
    chance = random.Random(seed)
    for part, name in methods():
        _break_sometimes(part, name, getattr(part, name), chance)


def _break_sometimes(part: type, name: str, whole: Callable[..., Any], chance: random.Random) -> None:
    def maybe(*args: Any, **kwargs: Any) -> Any:
        if chance.random() < 0.3:
            raise BrokenError(f"{part.__name__}.{name}")
        return whole(*args, **kwargs)

    setattr(part, name, maybe)


def interrupted() -> list[str]:
    """Return how errors of the user come out of what is watched."""

    class Data(torch.utils.data.Dataset[int]):
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            raise self.error

    found = []
    for error in (KeyboardInterrupt("now"), ValueError("mine"), SystemExit(3)):
        try:
            next(iter(DataLoader(Data(error))))
        except BaseException as caught:
            found.append(f"{type(caught).__name__} {caught.args} {caught.__context__} {caught is error}")
    try:
        torch.save(lambda: None, home() / "gone" / "x.pt")
    except Exception as caught:
        found.append(f"{type(caught).__name__} {caught.__context__}")
    return found


def main() -> None:
    """Train once as it is, then once with each piece broken; tell the losses of all."""
    warnings.simplefilter("error")
    join_group()
    observer = attach._attached
    told: dict[str, Any] = {"": train(*fresh())}
    counted, errors = {}, interrupted()
    for name, break_it in rounds() if observer is not None else ():
        saved = {(part, each): getattr(part, each) for part, each in methods()}
        before = observer.errors if observer is not None else 0
        break_it()
        told[name] = train(*fresh())
        for (part, each), whole in saved.items():
            setattr(part, each, whole)
        counted[name] = (observer.errors if observer is not None else 0) - before
    tell({"losses": told, "counted": counted, "methods": len(methods()), "errors": errors})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
