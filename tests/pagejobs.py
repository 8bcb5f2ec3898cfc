"""Processes with status pages that train for ever or stay where they are told to, and a guard beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from helpers import wait_until
from holdfast.guard.eventlog import append_line, encode
from holdfast.observe.eventlog import read_events
from holdfast.values import AnyEvent, GuardStarted, RunStarted, Stamp, WorkerHung

SCHEDULE = """dp 2 pp 2 microbatches 1
0.0: 0F0.0 0B0.0
0.1: 1F0.0 1B0.0
1.0: 0F1.0 0B1.0
1.1: 1F1.0 1B1.0
"""

WORKER = """
import sys, time
from pathlib import Path
from holdfast.job.ring import RingWriter, ring_path
from holdfast.job.status import Phase, StatusWriter, page_path, publish_schedule
folder, rank, phase, op, schedule = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
ring = RingWriter(ring_path(folder, rank), rank=rank)
for number in range(5):
    ring.append(number, 400_000_000 * number, 400_000_000 if number else 0)
publish_schedule(folder, 0, schedule)
page = StatusWriter(page_path(folder, rank), rank=rank, pp=2, dp=2)
for number in range(10**9):
    trains = phase == "TRAIN"
    page.enter(Phase["COMPUTE" if trains else phase], generation=0, step=number if trains else 0, op=int(op))
    if not number:
        print(flush=True)
    time.sleep(0.01)
"""
"""Trains for ever, or stays for ever where it is told to."""

LAUNCHER = """
import os, subprocess, sys
guard = [sys.executable, "-P", "-m", "holdfast.guard.watcher", "--parent", str(os.getpid()), *sys.argv[1:]]
while True:
    subprocess.run(guard)
"""
"""Starts a guard, and another when it is gone."""


class Job:
    """Workers with pages, and what they are watched by."""

    def __init__(self, folder: Path) -> None:
        self.rings, self.run_dir = folder / "rings", folder / "run"
        self.rings.mkdir()
        self.run_dir.mkdir()
        self.log = self.run_dir / "events.jsonl"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.launcher: subprocess.Popen[bytes] | None = None

    def add(self, phase: str = "TRAIN", op: int = 0) -> subprocess.Popen[bytes]:
        """Start the worker of the next rank, and wait for its page."""
        command = [sys.executable, "-c", WORKER, str(self.rings), str(len(self.workers)), phase, str(op)]
        worker = subprocess.Popen([*command, SCHEDULE], stdout=subprocess.PIPE)
        self.workers.append(worker)
        assert worker.stdout is not None
        worker.stdout.readline()
        return worker

    def guard(self, *flags: str, env: dict[str, str] | None = None) -> None:
        """Start a guard and wait for it."""
        arguments = ["--run-dir", str(self.run_dir), "--rings", str(self.rings), "--node", "0", *flags]
        command = [sys.executable, "-c", LAUNCHER, *arguments]
        self.launcher = subprocess.Popen(command, env=os.environ | (env or {}))
        stamp = Stamp(schema=1, event_id=f"0-{self.launcher.pid}-x", at="", host="a", node=0, attempt=0)
        append_line(self.log, encode(stamp, RunStarted(run_id="x", argv=[], pid=self.launcher.pid)))
        wait_until(self.guards, "the guard")

    def events(self) -> list[AnyEvent]:
        """All that was noted."""
        return [record.event for record in read_events(self.log).records]

    def guards(self) -> list[int]:
        """Process ids of all guards so far."""
        return [event.pid for event in self.events() if isinstance(event, GuardStarted)]

    def hung(self) -> list[WorkerHung]:
        """What was noted of hangs."""
        return [event for event in self.events() if isinstance(event, WorkerHung)]

    def stop(self, *ranks: int) -> None:
        """Stop workers by a signal."""
        for rank in ranks:
            self.workers[rank].send_signal(signal.SIGSTOP)

    def go_on(self, *ranks: int) -> None:
        """Continue them."""
        for rank in ranks:
            self.workers[rank].send_signal(signal.SIGCONT)

    def dead(self) -> list[int]:
        """Ranks that have ended."""
        return [rank for rank, worker in enumerate(self.workers) if worker.poll() is not None]

    def end(self) -> None:
        """Leave nothing running."""
        if self.launcher is not None:
            guards = psutil.Process(self.launcher.pid).children()
            self.launcher.kill()
            self.launcher.wait()
            for guard in guards:
                with contextlib.suppress(psutil.NoSuchProcess):
                    guard.kill()
        for worker in self.workers:
            worker.kill()
            worker.communicate()
