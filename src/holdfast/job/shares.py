"""``holdfast.Shares``: the ranks of a data-parallel script take different numbers of micro-batches.

A step has ``microbatches`` times as many of them as there are ranks, numbered from 0. Each rank takes some;
who takes how many follows the speeds that were measured, and may change between two steps. Every loss is
scaled alike, so the gradient is the mean over all micro-batches, whoever computed them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from holdfast.errors import InputError
from holdfast.job.attach import RINGS_ENV, observer
from holdfast.job.wishes import Granted, read_wish, write_granted
from holdfast.plan.share import split


class Shares:
    """One rank's micro-batches, step after step; every rank makes one, at the same point of its script."""

    def __init__(self, microbatches: int) -> None:
        """Share out ``microbatches`` per rank and step; without a process group, all are this one's."""
        if microbatches < 1:
            raise InputError(f"microbatches is {microbatches}, expected 1 or more")
        self.scale = 1.0 / microbatches
        """What every loss is to be multiplied by."""
        self._is_alone = not dist.is_initialized() or dist.get_world_size() == 1
        self._rank = 0 if self._is_alone else dist.get_rank()
        self._world = 1 if self._is_alone else dist.get_world_size()
        self._microbatches = microbatches
        # A group of our own, on the CPU: what ranks tell each other must not meet the script's traffic.
        self._group: Any = None if self._is_alone else dist.new_group(backend="gloo")
        rings = os.environ.get(RINGS_ENV)
        self._folder = Path(rings) if rings is not None else None
        self._followed = self._changes = 0
        self._step = -1
        self._is_last = True
        self.counts = [microbatches] * self._world
        """How many each rank takes."""
        self._publish()

    def __iter__(self) -> Iterator[int]:
        """Begin a step, and yield the numbers of this rank's micro-batches."""
        self._step += 1
        self._agree()
        first = sum(self.counts[: self._rank])
        last = first + self.counts[self._rank] - 1
        for number in range(first, last + 1):
            self._is_last = number == last
            yield number

    def sync(self, model: Any) -> AbstractContextManager[Any]:
        """Return what a backward pass has to be in, so that gradients are exchanged in the last one only."""
        is_needed = self._is_last or not hasattr(model, "no_sync")
        found: AbstractContextManager[Any] = nullcontext() if is_needed else model.no_sync()
        return found

    def _agree(self) -> None:
        """Follow the newest wish that rank 0 has heard of, on whose node the guard is that wishes."""
        if self._is_alone:
            return
        wish = read_wish(self._folder) if self._folder is not None and self._rank == 0 else None
        if wish is not None and wish.without:
            wish = None  # It is for the launchers: the job is to start again without somebody.
        number = torch.tensor([wish.number if wish is not None else 0])
        dist.broadcast(number, 0, group=self._group)
        if int(number) <= self._followed:
            return
        self._followed = int(number)
        slow = wish.speeds if wish is not None else {}
        speeds = torch.tensor([slow.get(rank, 1.0) for rank in range(self._world)], dtype=torch.float64)
        dist.broadcast(speeds, 0, group=self._group)
        self._follow(speeds.tolist())

    def _follow(self, speeds: list[float]) -> None:
        try:
            counts = split(self._world * self._microbatches, speeds, at_least=1)
        except InputError:  # Nonsense in the file; what there is goes on.
            return
        self.counts = counts
        self._changes += 1
        self._publish()

    def _publish(self) -> None:
        """Let the watch and the guard know what each rank has to do from now on."""
        if (watching := observer()) is not None:
            watching.follow_plan(
                self._changes,
                step=watching.steps,
                operations=self.counts[self._rank],
                pipeline=[self._rank],
            )
        if self._folder is None or self._rank != 0 or self._is_alone:
            return
        write_granted(
            self._folder,
            Granted(
                generation=self._changes,
                wish=self._followed,
                version=max(0, self._step),
                places={rank: rank for rank in range(self._world)},
                dp=self._world,
                pp=1,
                microbatches=self._microbatches,
                is_shared_by_stage=False,
            ),
        )
