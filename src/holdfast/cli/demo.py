"""``holdfast demo``: slow a worker of a real pipeline job down, kill another, and show live what happens.

The job runs under ``holdfast inject`` as anybody's would; what is shown is read from its run directory
and its rings, and from nowhere else. Then the same job runs without the faults, and the two are compared.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live

from holdfast.cli.demopage import page_of
from holdfast.cli.reporting import report
from holdfast.cli.screen import Screen, print_summary
from holdfast.errors import InputError, JobError
from holdfast.guard.rings import Rings
from holdfast.guard.rundir import RunInfo, default_path
from holdfast.incidents.words import phrase
from holdfast.lab.fork import Job, Lab
from holdfast.lab.story import Outcome, find_difference, read_outcome, tell
from holdfast.membership import Needs
from holdfast.observe.eventlog import read_run
from holdfast.telemetry import Step
from holdfast.values import Record, StepSeen

_RUN_INFO = msgspec.json.Decoder(RunInfo)
STEPS = 360
STAGES = 2
MICROBATCHES = 4
SLOW = "slow_device rank=2 at=60 for=180 severity=2"
"""The first worker of pipeline 1, for about half a minute: longer than it takes to find it."""
KILL = f"kill rank={2 * STAGES - 1} at={STEPS - 50}"
"""The last worker of pipeline 1, from outside."""
PADDING = ["--op-ms", "8"]
MODULE = "holdfast.lab.jobs.adaptive"
ARGUMENTS = ["--pp", str(STAGES), "--microbatches", str(MICROBATCHES), "--steps", str(STEPS)]
ARGUMENTS += ["--width", "16", "--batch", "1", "--length", "8"]
_PATIENCE_S = 600.0
AGAIN = "the same job once more, without the faults and without the waiting, to compare"


def play(*, ranks: int, picture: Path | None) -> int:
    """Run the demo to its end and return its exit code."""
    if picture is not None and not picture.absolute().parent.is_dir():
        raise InputError(f"{picture}: the folder does not exist")
    needs = shape_of(ranks)
    run_dir = default_path(Path("holdfast_runs"), "demo", datetime.now(UTC))
    console = Console()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # By way of `finally` below.
    follower = Follower(run_dir)
    show = _Show(console, needs)
    with page_of(run_dir.parent) as where:
        show.say(where)
        with _running(run_dir, ranks, console) as job:
            show.follow(job, follower)
    story = tell(follower.steps, follower.records, needs)
    if not story.recoveries:
        raise JobError(f"nobody was killed, or no step followed: see {run_dir}", exit_code=1)
    with show.waiting(AGAIN):
        whole = train_whole(ranks)
    dead = [recovery.rank for recovery in story.recoveries]
    difference = find_difference(follower.outcome, whole, steps=STEPS, dead=dead)
    print_summary(console, story, difference=difference, steps=STEPS)
    report(run_dir, None, as_json=False, is_forced=True)
    console.print(f"the page again: holdfast serve {run_dir.parent}", highlight=False, soft_wrap=True)
    if picture is not None:
        from holdfast.cli.picture import draw

        picture.write_text(draw(follower.steps, story), encoding="utf-8")
        console.print(f"picture written to {picture}", highlight=False, soft_wrap=True)
    return 1 if difference is not None else 0


def shape_of(ranks: int) -> Needs:
    """Return the job for a number of workers: pipelines of two stages, two at least, so that one can die."""
    if ranks % STAGES or ranks < 2 * STAGES:
        raise InputError(f"--ranks is {ranks}, expected an even number from 4 up: pipelines of two stages")
    return Needs(dp=ranks // STAGES, pp=STAGES, microbatches=MICROBATCHES)


def train_whole(ranks: int) -> Outcome:
    """Train the job without a failure, and without padding, which changes no number."""
    with Lab() as lab:
        result = lab.run(Job(module=MODULE, ranks=ranks, args=ARGUMENTS), timeout_s=_PATIENCE_S)
    if any(result.exit_codes):
        raise JobError(f"the job without the failure ended with {result.exit_codes}", exit_code=1)
    return read_outcome(dict(enumerate(result.logs)))


def read_logs(run_dir: Path) -> Outcome:
    """Return what the workers of a run have printed so far of their training."""
    paths = sorted(run_dir.glob("logs/attempt_0/rank_*.log"))
    # A line that is being written is no line yet: it would be half a number.
    texts = {int(path.stem.removeprefix("rank_")): path.read_text(errors="replace") for path in paths}
    return read_outcome({rank: text[: text.rfind("\n") + 1] for rank, text in texts.items()})


class Follower:
    """Reads what a live run leaves: its event log, its rings, its workers' output."""

    def __init__(self, run_dir: Path) -> None:
        self.steps: list[Step] = []
        self.records: list[Record] = []
        self.outcome = Outcome(losses={}, digests={})
        self._run_dir = run_dir
        self._rings: Rings | None = None

    def poll(self) -> list[Record]:
        """Read on, and return the events that are new."""
        if self._rings is None:
            info = self._run_dir / "run.json"
            if not info.exists():
                return []
            self._rings = Rings(Path(_RUN_INFO.decode(info.read_bytes()).rings))
        self.steps += self._rings.read()
        self.outcome = read_logs(self._run_dir)
        known = len(self.records)
        self.records = read_run(self._run_dir).records
        return self.records[known:]


class _Show:
    """Shows two jobs, one after the other: live on a terminal, one line per event elsewhere."""

    def __init__(self, console: Console, needs: Needs) -> None:
        self._console, self._needs = console, needs
        self._began_s = time.monotonic()
        if not console.is_terminal:
            shape = f"{needs.dp} pipelines x {needs.pp} stages"
            self.say(
                f"holdfast demo: {shape} on emulated accelerators; one worker slows down, another is killed"
            )

    def follow(self, job: subprocess.Popen[bytes], follower: Follower) -> None:
        """Show the job that is broken, until it ends."""
        if self._console.is_terminal:
            screen = Screen(self._needs, steps=STEPS)
            with Live(console=self._console, refresh_per_second=8, transient=False) as live:
                for _ in _until_end(job):
                    follower.poll()
                    live.update(screen.draw(follower.steps, follower.records, follower.outcome.losses))
            return
        for _ in _until_end(job):
            for record in follower.poll():
                if not isinstance(record.event, StepSeen):
                    self._tell(phrase(record.event))

    @contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """Say what is waited for."""
        if self._console.is_terminal:
            with self._console.status(words):
                yield
            return
        self._tell(words)
        yield

    def _tell(self, words: str) -> None:
        self.say(f"{time.monotonic() - self._began_s:5.1f} s  {words}")

    def say(self, line: str) -> None:
        """Print a line as it is."""
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def _running(run_dir: Path, ranks: int, console: Console) -> Iterator[subprocess.Popen[bytes]]:
    """Give the job that is broken, and end it with the block; if it failed, say its last words and raise."""
    command = [sys.executable, "-P", "-m", "holdfast.cli", "inject", "--fault", SLOW]
    command += [
        "--fault",
        KILL,
        "--act",
        "S2",
        "--run-dir",
        str(run_dir),
        "--nproc-per-node",
        str(ranks),
        "-m",
        MODULE,
    ]
    with tempfile.TemporaryFile("w+") as output:
        job = subprocess.Popen(
            [*command, *ARGUMENTS, *PADDING], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        try:
            yield job
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait()
        if job.returncode != 0:
            output.seek(0)
            console.print(output.read()[-4000:], markup=False, highlight=False)
            code = job.returncode if job.returncode > 0 else 128 - job.returncode
            raise JobError(f"the job of the demo ended with {code}", exit_code=code)


def _until_end(job: subprocess.Popen[bytes]) -> Iterator[None]:
    """Give a moment ten times a second, the last one when the job has ended."""
    is_running = True
    while is_running:
        is_running = job.poll() is None
        yield
        time.sleep(0.1)
