"""Workers of small pipeline jobs, each with something unusual: ``-m pipescenes NAME [word …]``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, TCPStore

import holdfast
from holdfast.job.attach import RINGS_ENV
from holdfast.job.build import digest_of
from holdfast.job.mesh import Mesh, PeerLostError, wait
from holdfast.job.wishes import write_wish
from holdfast.lab.mortal import Mortal, parse_death
from holdfast.membership import Arranged
from pipejobs import data, first_stage, last_stage, make_pipeline

RANK = int(os.environ.get("RANK", "0"))


class Start(nn.Module):
    """Hands on what it made, which of it counts, and a table that no input leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.table = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tanh(self.layer(x)), (x > 0).long(), self.table


class Middle(nn.Module):
    """Hands on two of its inputs as they are, beside what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor, mask: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        return x, mask, self.layer(x) * mask + table, self.shift * 2


class End(nn.Module):
    """Takes all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor, mask: Tensor, y: Tensor, shift: Tensor) -> Tensor:
        made: Tensor = self.layer(x * mask + y + shift)
        return made


def settings(*die: str, **more: Any) -> holdfast.PipelineSettings:
    """Return settings with deaths in them."""
    return holdfast.PipelineSettings(listeners=(Mortal([parse_death(w) for w in die], rank=RANK),), **more)


def skip(schedule: Any, is_exact: str, *die: str) -> None:
    """Train three stages with tensors that skip one, integers, and weights off the path."""
    stages = [Start, Middle, End]
    exact = is_exact == "exact"
    with make_pipeline(stages, exact=exact, settings=settings(*die, fault_free=schedule)) as pipeline:
        steps(pipeline, 4)


def half(*die: str) -> None:
    """Train parameters of two bytes each, without exact sums."""
    stages = [lambda: first_stage().bfloat16(), lambda: last_stage().bfloat16()]
    made = {"data": lambda *which: tuple(each.bfloat16() for each in data(*which))}
    with make_pipeline(stages, **made, settings=settings(*die)) as pipeline:
        steps(pipeline, 3)


def evaluate(rows: str, *die: str) -> None:
    """Train, measure on other data with so many rows, and train on."""
    with make_pipeline([first_stage, last_stage], exact=True, settings=settings(*die)) as pipeline:
        steps(pipeline, 3)
        say(f"evaluated {pipeline.evaluate(lambda *which: data(*which, rows=int(rows)), 3)!r}")
        steps(pipeline, 2)


def save(folder: str, *die: str) -> None:
    """Train, save, and train on."""
    with make_pipeline([first_stage, last_stage], exact=True, settings=settings(*die)) as pipeline:
        for _ in range(3):
            pipeline.step()
        pipeline.save(folder)
        steps(pipeline, 3)


def load(folder: str, *die: str) -> None:
    """Go on from where ``save`` saved."""
    with make_pipeline([first_stage, last_stage], exact=True, settings=settings(*die)) as pipeline:
        pipeline.load(folder)
        steps(pipeline, 3)


def late(act: str, folder: str, *die: str) -> None:
    """Save, load, or evaluate; rank 2 hears of its end only when another has died after it."""
    with make_pipeline([first_stage, last_stage], exact=True, settings=settings(*die)) as pipeline:
        engine, meet = pipeline._engine, pipeline._engine.meet

        def hear_late() -> None:
            meet()
            engine.meet = meet  # type: ignore[method-assign]
            while not engine.is_void:
                time.sleep(0.01)
            raise PeerLostError("somebody died after all had met")

        if act != "load":
            for _ in range(3):
                pipeline.step()
            pipeline.settle()
        if RANK == 2 and die:
            engine.meet = hear_late  # type: ignore[method-assign]
        if act == "evaluate":
            say(f"evaluated {pipeline.evaluate(data, 3)!r}")
        elif act == "save":
            pipeline.save(folder)
        else:
            pipeline.load(folder)
        steps(pipeline, 3)


def shares(folder: str) -> None:
    """Share out micro-batches; a wish is there before step 2, where rank 0 finds it and rank 1 cannot."""
    dist.init_process_group("gloo")
    os.environ[RINGS_ENV] = folder if RANK == 0 else f"{folder}/of another node"
    made = holdfast.Shares(4)
    for step in range(6):
        if step == 2 and RANK == 0:
            write_wish(Path(folder), Arranged(number=1, speeds={1: 0.6}))
        say(str(list(made)))
    dist.destroy_process_group()


def cut(count: str) -> None:
    """Train the same six layers, cut into so many stages."""
    size = 6 // int(count)
    stages = [lambda first=first: layers(first, first + size) for first in range(0, 6, size)]
    with make_pipeline(stages, max_norm=0.5, settings=settings()) as pipeline:
        steps(pipeline, 4)


def layers(first: int, end: int) -> nn.Module:
    """Return some of six layers, whose parameters depend on their numbers alone."""
    made = [nn.Linear(4, 1 if number == 5 else 4) for number in range(first, end)]
    for number, layer in enumerate(made, start=first):
        generator = torch.Generator().manual_seed(number)
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
    return nn.Sequential(*(part for layer in made for part in (layer, nn.Tanh())))


def misfit() -> None:
    """Cut a model where it does not fit."""
    make_pipeline([first_stage, lambda: nn.Linear(5, 1)])


def apart() -> None:
    """Start from parameters that depend on the rank."""

    def build() -> nn.Module:
        made = last_stage()
        nn.init.constant_(made[0].bias, float(RANK))  # type: ignore[index]
        return made

    make_pipeline([build])


def mesh() -> None:
    """Connect three workers, two of them of one stage; talk, and then be left by one of them."""
    world = int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    store = TCPStore(os.environ["MASTER_ADDR"], port, world, RANK == 0, timeout=timedelta(seconds=60))
    peers = [rank for rank in range(world) if rank % 2 == RANK % 2]
    made = Mesh(rank=RANK, members=range(world), peers=peers)
    made.connect(lambda name: PrefixStore(name, store))
    say(f"holds {len(made._sockets)} of {2 * (world - 1) + len(peers) - 1}")
    numbers, top = torch.tensor([RANK + 1]), torch.tensor([RANK])
    made.sum_stage(numbers)
    made.max_stage(top)
    say(f"stage {numbers.tolist()} {top.tolist()}")
    everybody = torch.tensor([2.0**RANK])
    made.finish_sum(made.start_sum(everybody))
    say(f"all {everybody.tolist()}")
    before, after = torch.zeros(1), torch.full((1,), float(RANK))
    sent = made.send(after, (RANK + 1) % world, 7)
    wait(made.receive(before, (RANK - 1) % world, 7))
    wait(sent)
    say(f"before {before.tolist()}")
    if RANK == 2:
        made.close()
    else:
        end_of(made)
    say("over")


def end_of(made: Mesh) -> None:
    """Wait for what never comes, in every way there is."""
    waits: list[Callable[[], None]] = [
        lambda: wait(made.receive(torch.zeros(1), 2, 9)),
        lambda: made.finish_sum(made.start_sum(torch.zeros(1))),
        made.close,
    ]
    for each in waits:
        try:
            each()
        except PeerLostError:
            say("lost")


def woken(rounds: str) -> None:
    """Add up and add up until the generation is over, again and again."""
    port = int(os.environ["MASTER_PORT"])
    store = TCPStore(os.environ["MASTER_ADDR"], port, 2, RANK == 0, timeout=timedelta(seconds=60))
    for number in range(int(rounds)):
        made, chance = Mesh(rank=RANK, members=[0, 1], peers=[0, 1]), Random(number)
        tensor = torch.ones(chance.choice([1, 50, 2000, 200_000]))
        with suppress(PeerLostError):
            made.connect(lambda name, number=number: PrefixStore(f"{number}/{name}", store))  # type: ignore[misc]
            # One leaves at some moment, and the other is told soon after, as the hub does.
            Timer(chance.uniform(0.05, 0.07) + 0.02 * (number % 2 == RANK), made.wake).start()
            while True:
                made.sum_stage(tensor)
        made.close()
        say(f"round {number}")


def steps(pipeline: holdfast.Pipeline, count: int) -> None:
    """Train so many steps, and say what came of them."""
    losses = [pipeline.step() for _ in range(count)]
    for loss in losses:
        say(f"step {loss.step} loss {loss.item()!r}")
    say(f"digest {digest_of(pipeline.module)}")


def say(line: str) -> None:
    """Write a line in one piece."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


_ALL = (skip, half, evaluate, save, load, late, shares, cut, misfit, apart, mesh, woken)
SCENES: dict[str, Callable[..., None]] = {each.__name__: each for each in _ALL}

if __name__ == "__main__":
    torch.set_num_threads(1)
    SCENES[sys.argv[1]](*sys.argv[2:])
