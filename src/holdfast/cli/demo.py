"""``holdfast demo``: break a real training job on purpose and show live what happens.

The job runs under ``holdfast inject`` as anybody's would; what is shown is read from its run directory
and its rings, and from nowhere else.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec
from rich.console import Console
from rich.live import Live

from holdfast.cli.screen import Screen, print_summary
from holdfast.cli.words import phrase
from holdfast.errors import InputError
from holdfast.guard.rings import Rings
from holdfast.guard.rundir import RunInfo, default_path
from holdfast.lab.story import tell
from holdfast.observe.eventlog import read_run
from holdfast.values import Record, Step, StepSeen

STEPS = 90
SLOW = "slow_device rank={rank} at=25 for=25 severity=3"
KILL = "kill rank={rank} at=70"
JOB = ["-m", "holdfast.lab.jobs.ddp", "--steps", str(STEPS), "--device", "emulated"]
JOB += ["--op-ms", "8", "--layers", "3", "--step-every", "30"]


def play(*, ranks: int, picture: Path | None) -> int:
    """Run the demo to its end and return its exit code."""
    if picture is not None and not picture.absolute().parent.is_dir():
        raise InputError(f"{picture}: the folder does not exist")
    run_dir = default_path(Path("holdfast_runs"), "demo", datetime.now(UTC))
    console = Console()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # By way of `finally` below.
    with tempfile.TemporaryFile("w+") as output:
        job = _start(run_dir, ranks, output)
        try:
            follower = Follower(run_dir)
            _show(job, follower, Screen(ranks=ranks, steps=STEPS), console)
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait()
        if job.returncode != 0:
            output.seek(0)
            console.print(output.read()[-4000:], markup=False)
            return job.returncode
    print_summary(console, tell(follower.steps, follower.records), run_dir)
    if picture is not None:
        from holdfast.cli.picture import draw

        picture.write_text(draw(follower.steps, follower.records))
        console.print(f"picture written to {picture}")
    return 0


class Follower:
    """Reads what a live run leaves: its event log and its rings."""

    def __init__(self, run_dir: Path) -> None:
        self.steps: list[Step] = []
        self.records: list[Record] = []
        self._run_dir = run_dir
        self._rings: Rings | None = None

    def poll(self) -> list[Record]:
        """Read on, and return the events that are new."""
        if self._rings is None:
            info = self._run_dir / "run.json"
            if not info.exists():
                return []
            self._rings = Rings(Path(msgspec.json.decode(info.read_bytes(), type=RunInfo).rings))
        self.steps += self._rings.read()
        known = len(self.records)
        self.records = read_run(self._run_dir).records
        return self.records[known:]


def _start(run_dir: Path, ranks: int, output: IO[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "holdfast.cli", "inject"]
    command += ["--fault", SLOW.format(rank=ranks - 1), "--fault", KILL.format(rank=1)]
    command += ["--run-dir", str(run_dir), "--nproc-per-node", str(ranks), "--max-restarts", "1"]
    return subprocess.Popen([*command, *JOB], stdout=output, stderr=output, stdin=subprocess.DEVNULL)


def _show(job: subprocess.Popen[bytes], follower: Follower, screen: Screen, console: Console) -> None:
    if not console.is_terminal:
        _show_plainly(job, follower, console)
        return
    with Live(console=console, refresh_per_second=8, transient=False) as live:
        is_running = True
        while is_running:
            is_running = job.poll() is None
            follower.poll()
            live.update(screen.draw(follower.steps, follower.records))
            time.sleep(0.1)


def _show_plainly(job: subprocess.Popen[bytes], follower: Follower, console: Console) -> None:
    """Print one line per event, for pipes and logs."""
    title = "holdfast demo: a real DDP job on emulated accelerators, one worker slowed, one killed"
    console.print(title, highlight=False, soft_wrap=True)
    began_s = time.monotonic()
    is_running = True
    while is_running:
        is_running = job.poll() is None
        for record in follower.poll():
            if not isinstance(record.event, StepSeen):
                console.print(f"{time.monotonic() - began_s:5.1f} s  {phrase(record.event)}", highlight=False)
        time.sleep(0.1)
