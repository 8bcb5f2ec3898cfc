"""Runs of the lab's pipeline job for benchmarks and tests: a hub, a fork server, deaths, what came out.

Workers are forked from a server that has imported torch, so that a run takes seconds; the hub is the one that
``holdfast run`` has in its launcher.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.guard.hub import Callbacks, Hub
from holdfast.job.messages import HUB_ENV, TOKEN_ENV
from holdfast.job.ring import RingReader, ring_path
from holdfast.lab.fork import Job, Lab, Result

MODULE = "holdfast.lab.jobs.adaptive"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How many pipelines, stages, micro-batches."""

    dp: int
    pp: int
    microbatches: int

    @property
    def workers(self) -> int:
        """How many processes that makes."""
        return self.dp * self.pp

    def __str__(self) -> str:
        return f"{self.dp}x{self.pp}x{self.microbatches}"


@dataclass(kw_only=True)
class Finished:
    """What became of a run."""

    result: Result
    pp: int
    stops: list[str] = field(default_factory=list)
    """Reasons why training could not go on."""
    killed_s: dict[int, float] = field(default_factory=dict)
    """When ranks were killed from outside."""

    @property
    def dead(self) -> list[int]:
        """Ranks that did not end with success."""
        return [rank for rank, code in enumerate(self.result.exit_codes) if code != 0]

    @property
    def digests(self) -> dict[int, str]:
        """Hash of the parameters that each rank ended with."""
        found = {rank: re.search(r"digest (\w+)", log) for rank, log in enumerate(self.result.logs)}
        return {rank: match[1] for rank, match in found.items() if match}

    @property
    def stage_digests(self) -> dict[int, str]:
        """The same by stage; raises if peers differ."""
        stages: dict[int, str] = {}
        for rank, digest in self.digests.items():
            if stages.setdefault(rank % self.pp, digest) != digest:
                raise ValueError(f"rank {rank} ended with other parameters than its peers")
        return stages

    @property
    def losses(self) -> list[float]:
        """One per step, as the teller printed them; a step may have been told twice."""
        found: dict[int, float] = {}
        for log in self.result.logs:
            for step, loss in re.findall(r"^step (\d+) loss (\S+)$", log, re.MULTILINE):
                found[int(step)] = float(loss)
        return [found[step] for step in sorted(found)]

    @property
    def ends_s(self) -> dict[int, list[float]]:
        """When each call of ``step`` ended, by rank."""
        return self._numbers("ends")

    @property
    def pauses_s(self) -> dict[int, list[float]]:
        """How long each recovery took, by rank."""
        return self._numbers("pauses")

    def _numbers(self, name: str) -> dict[int, list[float]]:
        found = {rank: re.search(rf"{name} (\[.*\])", log) for rank, log in enumerate(self.result.logs)}
        return {rank: json.loads(match[1]) for rank, match in found.items() if match}


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Kill a rank from outside, so long after the first step was seen; never announced to it."""

    rank: int
    after_s: float
    number: signal.Signals = signal.SIGKILL


def run(
    lab: Lab,
    shape: Shape,
    arguments: Sequence[str],
    *,
    kills: Sequence[Kill] = (),
    timeout_s: float = 90.0,
) -> Finished:
    """Run the job once."""
    stops: list[str] = []
    killed_s: dict[int, float] = {}
    with open_hub(stops) as env:
        job = Job(
            module=MODULE,
            ranks=shape.workers,
            args=[
                *("--pp", str(shape.pp), "--microbatches", str(shape.microbatches)),
                *("--dump-after", str(timeout_s - 10)),
                *arguments,
            ],
            env=env,
        )
        result = lab.run(
            job, timeout_s=timeout_s, grace_s=timeout_s, on_start=_killer(kills, killed_s) if kills else None
        )
    return Finished(result=result, pp=shape.pp, stops=stops, killed_s=killed_s)


@contextmanager
def open_hub(stops: list[str]) -> Iterator[dict[str, str]]:
    """Open a hub as ``holdfast run`` has one, and yield what its workers need to find it.

    Reasons why training could not go on are added to ``stops``.
    """
    token = secrets.token_hex(8)
    hub = Hub(token, Callbacks(on_stop=stops.append), is_local=True)
    try:
        yield {HUB_ENV: f"127.0.0.1:{hub.port}", TOKEN_ENV: token}
    finally:
        hub.close()


def _killer(kills: Sequence[Kill], killed_s: dict[int, float]) -> Callable[[Path, dict[int, int]], None]:
    def begin(folder: Path, pids: dict[int, int]) -> None:
        threading.Thread(target=_kill_all, args=(folder, pids, kills, killed_s), daemon=True).start()

    return begin


def _kill_all(folder: Path, pids: dict[int, int], kills: Sequence[Kill], killed_s: dict[int, float]) -> None:
    started_s = _wait_for_step(folder / "rings")
    for kill in sorted(kills, key=lambda each: each.after_s):
        time.sleep(max(0.0, started_s + kill.after_s - time.monotonic()))
        pid = pids.get(kill.rank)
        if pid is not None:
            os.kill(pid, kill.number)
            killed_s[kill.rank] = time.monotonic()


def _wait_for_step(rings: Path) -> float:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for path in rings.glob(ring_path(rings, 0).name.replace("0", "*")):
            try:
                if RingReader(path).read():
                    return time.monotonic()
            except (OSError, ValueError):  # Not there yet, or not whole.
                continue
        time.sleep(0.005)
    return time.monotonic()


def victims(rng: random.Random, shape: Shape) -> list[int]:
    """Return one or two ranks whose death leaves every stage alive."""
    first = rng.randrange(shape.workers)
    second = rng.randrange(shape.workers)
    if rng.random() < 0.6 or first == second:
        return [first]
    is_same_stage = first % shape.pp == second % shape.pp
    return [first] if is_same_stage and shape.dp < 3 else [first, second]
