"""A small GPT trained by ``holdfast.Pipeline``: dp x pp workers, any of which may die.

One rank prints the losses; every rank prints at its end when its steps ended, how long recoveries kept it
from training, and a digest of its parameters.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

import holdfast
from holdfast.job.build import digest_of
from holdfast.job.place import find_place
from holdfast.job.timeline import Timeline
from holdfast.lab import gpt
from holdfast.lab.device import LABEL
from holdfast.lab.mortal import Mortal, parse_death
from holdfast.lab.padding import Padding


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line."""

    pp: int
    microbatches: int
    steps: int
    width: int
    batch: int
    length: int
    dropout: float
    max_norm: float
    exact: bool
    synchronous: bool
    schedule: Literal["zero_bubble", "1f1b"]
    op_ms: float
    slow: list[str]
    absent: list[str]
    die: list[str]
    teller: int
    dump_after: float
    seed: int
    timeline: str
    checkpoints: str
    checkpoint_every: int
    swap: list[str]


def main() -> None:
    """Train as the command line says."""
    options = parse(sys.argv[1:])
    torch.set_num_threads(1)
    if options.dump_after:
        faulthandler.dump_traceback_later(options.dump_after)
    timeline = Timeline(options.timeline, rank=find_place(os.environ).rank) if options.timeline else None
    with open_pipeline(options, timeline) as pipeline:
        if options.slow and not pipeline.step_number:
            pipeline.rebalance(speeds_of(options.slow))
        ends_s = train(pipeline, options)
    if timeline is not None and not timeline.write():
        say(f"rank {pipeline.rank}: its timeline could not be written to {options.timeline}")
    say(f"rank {pipeline.rank} ends {json.dumps(ends_s)}")
    say(f"rank {pipeline.rank} pauses {json.dumps(pipeline.pauses_s)}")
    say(f"rank {pipeline.rank} meetings {json.dumps(pipeline.meetings_s)}")
    say(f"rank {pipeline.rank} digest {digest_of(pipeline.module)}")


def train(pipeline: holdfast.Pipeline, options: Options) -> list[float]:
    """Train all steps and return when each call ended; losses are read a step late, so that nobody waits."""
    last: holdfast.Loss | None = None
    ends_s: list[float] = []
    is_teller = pipeline.rank == options.teller
    swaps = {int(step): places for step, *places in (text.split(":") for text in options.swap)}
    while pipeline.step_number < options.steps:
        if pipeline.step_number in swaps:
            pipeline.swap(*swaps[pipeline.step_number])
        loss = pipeline.step()
        ends_s.append(time.monotonic())
        if is_teller and last is not None:
            say(f"step {last.step} loss {last.item()!r}")
        last = loss
    if is_teller and last is not None:
        say(f"step {last.step} loss {last.item()!r}")
    return ends_s


def parse(argv: list[str]) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--exact", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--synchronous", action="store_true", help="no update ahead of its verdict")
    parser.add_argument("--schedule", choices=["zero_bubble", "1f1b"], default="zero_bubble")
    parser.add_argument("--op-ms", type=float, default=0.0, help="emulate accelerators: F, I and W each")
    parser.add_argument("--slow", nargs="*", default=[], help="such as 1.2=0.5: emulated at half speed")
    parser.add_argument("--absent", nargs="*", default=[], help="workers that die at the first step: 1.2")
    parser.add_argument("--die", nargs="*", default=[], help="RANK:POINT:STEP:COUNT")
    parser.add_argument("--teller", type=int, default=0, help="the rank that prints losses")
    parser.add_argument("--dump-after", type=float, default=0.0, help="print stacks after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeline", default="", help="a folder: write when every operation ran")
    parser.add_argument("--checkpoints", default="", help="a folder: write checkpoints, go on from the last")
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps")
    parser.add_argument("--swap", nargs="*", default=[], help="STEP:0.1:1.1: two workers change places")
    return Options(**vars(parser.parse_args(argv)))


def open_pipeline(options: Options, timeline: Timeline | None = None) -> holdfast.Pipeline:
    """Return this worker's end of the job."""
    return holdfast.Pipeline(
        [builder(options, stage) for stage in range(options.pp)],
        loss=gpt.loss_of,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / 10)
        ),
        data=data_of(options),
        microbatches=options.microbatches,
        max_norm=options.max_norm or None,
        exact=options.exact,
        settings=holdfast.PipelineSettings(
            is_staggered=not options.synchronous,
            fault_free=options.schedule,
            seed=options.seed,
            checkpoints=options.checkpoints or None,
            checkpoint_every=options.checkpoint_every,
            # Last, so that the padding belongs to the operations.
            listeners=(*listeners_of(options), *([timeline] if timeline is not None else [])),
        ),
    )


def builder(options: Options, stage: int) -> Callable[[], nn.Module]:
    """Return the builder of a stage: its share of the blocks, and dropout behind them."""

    def build() -> nn.Module:
        model = gpt.build(width=options.width, layers=options.pp)
        parts = list(gpt.stage(model, stage, options.pp))
        # Before the head, which has to be the last; the stages without one end in dropout.
        place = len(parts) - 1 if stage == options.pp - 1 else len(parts)
        return nn.Sequential(*parts[:place], nn.Dropout(options.dropout), *parts[place:])

    return build


def data_of(options: Options) -> Callable[[int, int, int], tuple[Tensor, Tensor]]:
    """Return data that can be learned a little: walks over the vocabulary, some of them noisy."""

    def data(step: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        seed = ((options.seed * 100_000 + step) * 64 + pipeline) * 512 + microbatch
        generator = torch.Generator().manual_seed(seed)
        shape = (options.batch, 1)
        start = torch.randint(0, gpt.VOCABULARY, shape, generator=generator)
        stride = torch.randint(1, 4, shape, generator=generator)
        walk = (start + stride * torch.arange(options.length + 1)) % gpt.VOCABULARY
        return walk[:, :-1], walk[:, 1:]

    return data


def listeners_of(options: Options) -> tuple[Any, ...]:
    """Return who listens: emulated accelerators where asked for, and deaths."""
    rank = find_place(os.environ).rank
    absent = [f"{rank_of(name, options.pp)}:forward:0:1" for name in options.absent]
    listeners: list[Any] = [Mortal([parse_death(text) for text in [*options.die, *absent]], rank=rank)]
    if options.op_ms:
        speed = speeds_of(options.slow).get(f"{rank // options.pp}.{rank % options.pp}", 1.0)
        listeners.append(Padding(options.op_ms / 1000 / speed))
        if rank == 0:
            say(f"{LABEL}: {options.op_ms:g} ms each for forward, input and weight")
    return tuple(listeners)


def speeds_of(words: list[str]) -> dict[str, float]:
    """Return the speeds that words like ``1.2=0.5`` stand for."""
    return {name: float(speed) for name, _, speed in (word.partition("=") for word in words)}


def rank_of(worker: str, pp: int) -> int:
    """Return the rank of a worker written ``pipeline.stage``."""
    pipeline, _, stage = worker.partition(".")
    return int(pipeline) * pp + int(stage)


def say(line: str) -> None:
    """Print a line in one write: lines of several ranks never mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
