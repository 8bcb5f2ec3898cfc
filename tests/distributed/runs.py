"""Start real launches and look at what they leave."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from holdfast.observe.eventlog import EventLogContent, read_run
from holdfast.values import AttemptStarted, GuardStarted

TRAIN = Path(__file__).with_name("train.py")
"""A small DDP job; its behaviour is set by variables."""


class Run:
    """One ``holdfast run`` in a folder of its own."""

    def __init__(
        self, folder: Path, *arguments: str, verb: str = "run", has_run_dir: bool = True, **env: str
    ) -> None:
        self.run_dir = folder / "run"
        told = ["--run-dir", str(self.run_dir)] if has_run_dir else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", verb, *told, *arguments],
            cwd=folder,
            env=os.environ | {"HOLDFAST_TEST_MARK": str(folder)} | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.mark = str(folder)
        self.stdout = ""
        self.stderr = ""

    def finish(self, timeout_s: float = 90) -> int:
        """Wait for the end and return the exit code."""
        self.stdout, self.stderr = self.process.communicate(timeout=timeout_s)
        return self.process.returncode

    @property
    def output(self) -> str:
        """All that was printed."""
        return self.stdout + self.stderr

    def events(self) -> EventLogContent:
        """Read the event log."""
        return read_run(self.run_dir)

    def worker_pids(self) -> list[int]:
        """Process ids of the newest attempt."""
        with contextlib.suppress(Exception):
            for record in reversed(self.events().records):
                if isinstance(record.event, AttemptStarted):
                    return record.event.pids
        return []

    def guard_pid(self) -> int:
        """Process id of the newest guard."""
        guards = [r.event.pid for r in self.events().records if isinstance(r.event, GuardStarted)]
        return guards[-1]

    def wait_for_steps(self, timeout_s: float = 60) -> None:
        """Return when the workers are training."""
        wait_until(lambda: "step_seen" in self._log_text(), timeout_s)

    def left_behind(self) -> list[int]:
        """Return the processes of this run that are still alive."""
        return [process.pid for process in psutil.process_iter() if self._is_ours(process)]

    def _log_text(self) -> str:
        file = self.run_dir / "events.jsonl"
        return file.read_text() if file.exists() else ""

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return process.environ().get("HOLDFAST_TEST_MARK") == self.mark
        return False


@contextlib.contextmanager
def running(
    folder: Path, *arguments: str, verb: str = "run", has_run_dir: bool = True, **env: str
) -> Iterator[Run]:
    """A run that is gone at the end of the block, whatever the test did to it."""
    run = Run(folder, *arguments, verb=verb, has_run_dir=has_run_dir, **env)
    try:
        yield run
    finally:
        for pid in run.left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if run.process.stdout is not None and not run.process.stdout.closed:
            run.process.communicate()


def free_port() -> str:
    """Return a port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def wait_until(is_true: Callable[[], object], timeout_s: float) -> None:
    """Return when the condition holds; raise when it does not within the time."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s"
        time.sleep(0.02)
