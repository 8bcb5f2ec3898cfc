"""A trace of spot instances that come and go, played on the workers of a real job."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from returning.forked import start_joining
from returning.runs import Launched


@dataclass(frozen=True)
class Change:
    """A node that comes or goes."""

    at_s: float
    node: str
    is_arrival: bool


@dataclass
class Sample:
    """What the run had at a moment, in all its processes."""

    at_s: float
    step: int
    workers: int
    memory_mb: float
    """Of the launcher and the guard."""
    worker_mb: float
    """Of the worker that has lived longest."""
    files: int
    """Open in the launcher and the guard."""
    worker_files: int


def read_trace(path: Path) -> list[Change]:
    """Return the changes of a file with milliseconds, ``add`` or ``remove``, and a node in each row."""
    with path.open() as file:
        return [Change(int(at) / 1000, node, word == "add") for at, word, node in csv.reader(file)]


class Fleet:
    """The nodes that are there, each with one worker: those of the launcher, and those that joined."""

    def __init__(self, run: Launched, nodes: Sequence[str]) -> None:
        self._run = run
        self._pids = dict(zip(nodes, run.attempts()[-1].pids, strict=True))
        self._joined: dict[str, ForkServerProcess] = {}
        self._attempts = len(run.attempts())
        self._extra: list[int] = []
        """Workers of a new attempt for whom there is no node."""
        self._first = psutil.Process(run.process.pid)

    def apply(self, change: Change) -> None:
        """Start the worker of a node that comes, kill that of one that goes."""
        if change.is_arrival:
            self._join(change.node)
        elif change.node in self._joined:
            gone = self._joined.pop(change.node)
            _end(gone)
        elif change.node in self._pids:
            _kill(self._pids.pop(change.node))

    def follow(self) -> None:
        """After a fall-back the launcher starts all its workers anew: give them to the nodes that are there.

        Those for whom there is no node are taken away as soon as the job trains; nodes that are left over
        join again.
        """
        attempts = self._run.attempts()
        if len(attempts) > self._attempts:
            self._attempts = len(attempts)
            nodes = [*self._pids, *self._joined]
            for each in self._joined.values():
                _end(each)
            pids = attempts[-1].pids
            self._pids = dict(zip(nodes, pids, strict=False))
            self._extra = pids[len(nodes) :]
            self._joined = {}
            for node in nodes[len(pids) :]:
                self._join(node)
        if self._extra and self._run.is_training(self._attempts - 1):
            for pid in self._extra:
                _kill(pid)
            self._extra = []

    def _join(self, node: str) -> None:
        self._joined[node] = start_joining(self._run.run_dir, self._run.joined)

    def sample(self, began_s: float, step: int) -> Sample:
        """Look at the processes."""
        joined = [each.pid for each in self._joined.values() if each.pid is not None]
        workers = [*self._pids.values(), *joined]
        keepers = [self._first, *(each for each in self._first.children() if each.pid not in workers)]
        oldest = psutil.Process(workers[0])
        return Sample(
            at_s=time.monotonic() - began_s,
            step=step,
            workers=len(workers),
            memory_mb=sum(each.memory_info().rss for each in keepers) / 1e6,
            worker_mb=oldest.memory_info().rss / 1e6,
            files=sum(each.num_fds() for each in keepers),
            worker_files=oldest.num_fds(),
        )

    def close(self) -> None:
        """Wait for those that joined, and end who is a spare."""
        for each in self._joined.values():
            each.join(30)
            _end(each)


def _end(process: ForkServerProcess) -> None:
    process.kill()
    process.join()
    process.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # The launcher has ended it: it falls back.
        os.kill(pid, signal.SIGKILL)


def play(
    run: Launched, fleet: Fleet, changes: Sequence[Change], compress: float, every_s: float
) -> Iterator[Sample]:
    """Let nodes come and go as the trace says, so many times as fast; yield what is there meanwhile."""
    began_s = time.monotonic()
    ahead = list(changes)
    while run.process.poll() is None:
        now_s = time.monotonic() - began_s
        while ahead and ahead[0].at_s / compress <= now_s:
            fleet.apply(ahead.pop(0))
        fleet.follow()
        with contextlib.suppress(psutil.Error, IndexError):  # Somebody has just gone.
            yield fleet.sample(began_s, run.last_update())
        time.sleep(every_s)
