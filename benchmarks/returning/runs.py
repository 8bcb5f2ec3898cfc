"""Runs of the lab's pipeline job under ``holdfast run``, whose workers may be killed, and what they tell."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import InputError
from holdfast.observe.eventlog import read_run
from holdfast.values import AnyEvent, AttemptStarted, Regrouped, StepSeen, WorkerReturned

PATIENCE_S = 300.0


class Launched:
    """One ``holdfast run`` and its folder."""

    def __init__(
        self, folder: Path, workers: int, flags: Sequence[str], job: Sequence[str], *, verb: str = "run"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.run_dir = folder / "run"
        self._out = folder / "out.txt"
        self.joined = folder / "joined.txt"
        """What workers print that joined by themselves."""
        words = [verb, *flags, "--run-dir", str(self.run_dir), "--nproc-per-node", str(workers)]
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", *words, "-m", "holdfast.lab.jobs.adaptive", *job],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    @property
    def said(self) -> str:
        """Everything that was printed so far."""
        return self._out.read_text(errors="replace")

    def events(self) -> list[AnyEvent]:
        """Return what happened so far."""
        try:
            return [record.event for record in read_run(self.run_dir).records]
        except InputError:
            return []

    def last_step(self) -> int:
        """Return the last step that any rank is known to have finished."""
        try:
            with (self.run_dir / "summaries.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
                lines = file.read().splitlines()
        except OSError:
            return 0
        for line in reversed(lines):
            try:
                return max(int(step) for step in json.loads(line)["steps"].values())
            except (ValueError, KeyError):  # The line that is being written, or a first one that was cut.
                continue
        return 0

    def last_update(self) -> int:
        """Return how many updates are known to have been made: an attempt counts its own steps."""
        starts = [e.version for e in self.events() if isinstance(e, Regrouped) and e.generation == 0]
        return (starts[-1] if starts else 0) + self.last_step()

    def attempts(self) -> list[AttemptStarted]:
        """Return the starts of all workers so far."""
        return [event for event in self.events() if isinstance(event, AttemptStarted)]

    def is_training(self, attempt: int) -> bool:
        """Say whether a step of an attempt was seen."""
        try:
            records = read_run(self.run_dir).records
        except InputError:
            return False
        return any(isinstance(each.event, StepSeen) and each.stamp.attempt == attempt for each in records)

    def said_in(self, attempt: int) -> str:
        """Return what the workers of one attempt have printed so far."""
        logs = sorted(self.run_dir.glob(f"logs/attempt_{attempt}/*.log"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def pid_of(self, rank: int) -> int:
        """Return the process that has the rank now."""
        events = self.events()
        back = [e.pid for e in events if isinstance(e, WorkerReturned) and e.rank == rank]
        started = [e for e in events if isinstance(e, AttemptStarted)]
        return back[-1] if back else started[-1].pids[started[-1].ranks.index(rank)]

    def kill(self, rank: int) -> float:
        """Kill a worker, and return when."""
        os.kill(self.pid_of(rank), signal.SIGKILL)
        return time.monotonic()

    def wait(self, is_true: Callable[[], object]) -> bool:
        """Wait until something is true; False if the run ended before."""
        until_s = time.monotonic() + PATIENCE_S
        while not is_true():
            if self.process.poll() is not None or time.monotonic() > until_s:
                return False
            time.sleep(0.05)
        return True

    def numbers(self, name: str) -> dict[int, list[float]]:
        """Return lists that ranks have printed under a name."""
        found = re.findall(rf"rank (\d+) {name} (\[.*\])", self.said)
        return {int(rank): json.loads(text) for rank, text in found}

    def digests(self) -> dict[int, str]:
        """Return the hash of each rank's parameters at its end."""
        joined = self.joined.read_text(errors="replace") if self.joined.exists() else ""
        found = re.findall(r"rank (\d+) digest (\w+)", self.said + joined)
        return {int(rank): digest for rank, digest in found}


@contextmanager
def launched(workers: int, flags: Sequence[str], job: Sequence[str]) -> Iterator[Launched]:
    """A run that is gone at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        run = Launched(Path(folder), workers, flags, job)
        try:
            yield run
        finally:
            if run.process.poll() is None:
                run.process.terminate()
                run.process.wait(60)
