"""Where tests start workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from helpers import PATIENCE_S, Ears, wait_until
from holdfast.guard.console import Console
from holdfast.guard.output import Pump, Show
from holdfast.guard.workers import WorkerPlan, Workers
from holdfast.values import Death


class Desk:
    """Starts workers in a folder."""

    def __init__(self, folder: Path, ears: Ears) -> None:
        self.folder, self._say = folder, ears.say
        self._console = Console()
        self.pump = Pump(self._console, ears.say)
        self._started: list[Workers] = []

    def start(self, *commands: list[str]) -> Workers:
        """Start one worker per command, with ranks from 10 up."""
        workers = Workers([self.plan(*plan) for plan in enumerate(commands)], self.pump, self._say)
        self._started.append(workers)
        return workers

    def end(self, workers: Workers) -> list[Death]:
        """Wait for all, and for their last words; return the deaths."""
        wait_until(lambda: not workers.running(), "the workers' end")
        self.pump.drain(PATIENCE_S)
        return [worker.death(node=1, host="a") for worker in workers.failed()]

    def close(self) -> None:
        """Leave nothing running."""
        for workers in self._started:
            workers.stop(signal.SIGKILL, grace_s=0)
        self.pump.close()
        self._console.close(PATIENCE_S)

    def plan(self, local_rank: int, command: list[str]) -> WorkerPlan:
        """Return what a worker is started with."""
        return WorkerPlan(
            rank=10 + local_rank,
            local_rank=local_rank,
            command=command,
            env={"PATH": os.environ["PATH"], "HOLDFAST_RINGS": str(self.folder / "no rings")},
            log=self.folder / f"rank_{10 + local_rank}.log",
            show=Show(prefix="", stdout=False, stderr=False),
        )
