"""Workers that hang under ``holdfast run``, and workers that only look as if they did.

A worker is stopped (SIGSTOP) at a random moment; the guard has to turn that into a death, and the others have
to go on. And runs without any fault on fully loaded cores, in which nobody may be killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import common
from holdfast.errors import InputError
from holdfast.observe.eventlog import read_run
from holdfast.values import AnyEvent, AttemptStarted, Regrouped, WorkerDied, WorkerHung

WORKERS = 4
JOB = ["-m", "holdfast.lab.jobs.adaptive", "--pp", "2", "--microbatches", "4", "--width", "16"]


def measure_stops(count: int, seed: int) -> common.Part:
    """Stop one worker in each run, and compare what that costs with three step times and a second."""
    rows = []
    with common.progress() as bar:
        task = bar.add_task("stopped workers", total=count)
        for number in range(count):
            rows.append(_stop_once(random.Random(seed + number)))
            bar.advance(task)
    is_good = all(row["is_within"] and row["exit_code"] == 0 for row in rows)
    held = sum(row["is_within"] for row in rows)
    waits = [row["to_next_step_s"] for row in rows if row["to_next_step_s"] is not None]
    notes = [f"{held} of {count} within 3 step times + 1 s; median {statistics.median(waits or [0]):.2f} s"]
    return common.Part(rows, [*notes, "emulated accelerators, 2x2x4, under holdfast run"], is_good=is_good)


def measure_calm(count: int) -> common.Part:
    """Run without faults beside a busy loop on every core; count who was killed."""
    killed, failed = 0, 0
    with _busy_cores(), common.progress() as bar:
        task = bar.add_task("runs on loaded cores", total=count)
        for _ in range(count):
            with _started(["--steps", "40"]) as (process, folder):
                failed += process.wait(300) != 0
                killed += sum(isinstance(event, WorkerHung | WorkerDied) for event in _events(folder))
            bar.advance(task)
    row = {"runs": count, "workers_killed": killed, "runs_that_failed": failed}
    notes = [f"2x2x4, real compute, {os.cpu_count()} busy loops beside it"]
    return common.Part([row], notes, is_good=killed == failed == 0)


def _stop_once(rng: random.Random) -> dict[str, Any]:
    rank, after_s = rng.randrange(WORKERS), rng.uniform(1.0, 3.0)
    with _started(["--steps", "60", "--op-ms", "10"]) as (process, folder):
        pids = _wait_for_steps(folder)
        time.sleep(after_s)
        stopped_s = time.monotonic()
        os.kill(pids[rank], signal.SIGSTOP)
        code = process.wait(120)
        ends = _ends(folder)
        regrouped_s = _regrouped_s(folder)
    usual_s = statistics.median(after - before for each in ends for before, after in pairwise(each))
    waited_s = None if regrouped_s is None else _first_end(ends, regrouped_s) - stopped_s
    limit_s = 3 * usual_s + 1
    return {
        "rank": rank,
        "step_s": round(usual_s, 3),
        "to_regroup_s": None if regrouped_s is None else round(regrouped_s - stopped_s, 2),
        "to_next_step_s": None if waited_s is None else round(waited_s, 2),
        "limit_s": round(limit_s, 2),
        "is_within": waited_s is not None and waited_s <= limit_s,
        "exit_code": code,
    }


def _regrouped_s(folder: Path) -> float | None:
    """Return when the others agreed to go on, on the monotonic clock; None: they never did."""
    offset_s = time.time() - time.monotonic()
    for record in read_run(folder).records:
        if isinstance(record.event, Regrouped) and record.event.dead:
            return datetime.fromisoformat(record.stamp.at).timestamp() - offset_s
    return None


def _first_end(ends: list[list[float]], after_s: float) -> float:
    """Return when all workers have ended a step since then."""
    return max(min((end for end in each if end > after_s), default=math.inf) for each in ends)


@contextlib.contextmanager
def _started(arguments: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-hangs-") as name:
        folder = Path(name) / "run"
        command = [sys.executable, "-m", "holdfast.cli", "run", "--nproc-per-node", str(WORKERS)]
        command += ["--run-dir", str(folder), *JOB, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process, folder
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)


def _events(folder: Path) -> list[AnyEvent]:
    try:
        return [record.event for record in read_run(folder).records]
    except InputError:  # Not there yet.
        return []


def _wait_for_steps(folder: Path) -> dict[int, int]:
    """Wait until all workers train, and return their process ids."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        if any("step 3 " in path.read_text(errors="replace") for path in folder.rglob("*.log")):
            starts = [event for event in _events(folder) if isinstance(event, AttemptStarted)]
            return dict(zip(starts[-1].ranks, starts[-1].pids, strict=True))
        time.sleep(0.05)
    raise TimeoutError("the job did not start to train")


def _ends(folder: Path) -> list[list[float]]:
    texts = [path.read_text(errors="replace") for path in folder.rglob("*.log")]
    found = [re.search(r"ends \[(.*)\]", text) for text in texts]
    return [[float(word) for word in match[1].split(",")] for match in found if match]


@contextlib.contextmanager
def _busy_cores() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
