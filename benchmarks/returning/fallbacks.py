"""A job that is killed as a whole, again and again, and goes on from its checkpoints: to the same bits?

In turn the launcher is killed, and all with it, or both workers of a stage; at a random moment, or while a
checkpoint is being written.
"""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast.values import AttemptStarted
from returning.runs import Launched

SHAPE = (2, 2)
JOB = ("--pp", "2", "--microbatches", "2", "--width", "32")
PADDING = ("--op-ms", "5")
"""So that the job lasts for all kills; it changes no number."""
EVERY = 10
RESTARTS = "1000"


def measure(kills: int, seed: int, steps: int) -> dict[str, Any]:
    """Kill a job so often, and say what came of it."""
    calm = _calm(steps)
    chance = random.Random(seed)
    row: dict[str, Any] = {"kills": 0, "of launchers": 0, "while saving": 0, "starts": 0, "steps lost": 0}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Path(folder) / "checkpoints"
        while row["kills"] < kills:
            job = [
                *JOB,
                *PADDING,
                "--steps",
                str(steps),
                "--checkpoints",
                str(checkpoints),
                "--checkpoint-every",
                str(EVERY),
            ]
            run = Launched(Path(folder) / f"launch{row['starts']}", 4, ["--max-restarts", RESTARTS], job)
            row["starts"] += 1
            while row["kills"] < kills and run.process.poll() is None:
                if not _kill(run, checkpoints, chance, row):
                    break
            if row["kills"] >= kills:
                run.wait(bool)
            run.process.wait(600)
            if run.process.returncode == 0 and row["kills"] < kills:
                raise SystemExit(f"the job was done after {row['kills']} kills: --steps has to be more")
            lost, odd = _read(run, row["starts"] == 1)
            row["steps lost"] += lost
            wrong += odd
        digests = run.digests()
    row["wrong"] = len(wrong)
    row["same bits"] = (
        run.process.returncode == 0 and set(digests.values()) == set(calm.values()) and not wrong
    )
    return row


def _calm(steps: int) -> dict[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        run = Launched(Path(folder) / "calm", 4, [], [*JOB, "--steps", str(steps)])
        run.process.wait(600)
        return run.digests()


def _kill(run: Launched, checkpoints: Path, chance: random.Random, row: dict[str, Any]) -> bool:
    """Kill something once the attempt makes steps; False if the run has to be started again."""
    if not run.wait(run.attempts):
        return False
    attempt = len(run.attempts())
    if not run.wait(lambda: len(re.findall(r"step \d+ loss", run.said_in(attempt - 1))) > 3):
        return True
    time.sleep(chance.uniform(0, 2.0))
    if chance.random() < 0.4:
        row["while saving"] += run.wait(lambda: any(checkpoints.glob(".step-*.partial")))
    if run.process.poll() is not None:
        return False
    row["kills"] += 1
    if chance.random() < 0.5:
        row["of launchers"] += 1
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait(60)
        return False
    before: AttemptStarted = run.attempts()[-1]
    stage = chance.randrange(SHAPE[1])
    for rank in range(stage, len(before.pids), SHAPE[1]):
        os.kill(before.pids[rank], signal.SIGKILL)
    run.wait(lambda: len(run.attempts()) > attempt)
    return True


def _read(run: Launched, is_first: bool) -> tuple[int, list[str]]:
    """Return how many steps were lost by what the run says, and what in that cannot be."""
    told = re.findall(r"goes on from step (\d+): (\d+) steps? of the last run", run.said)
    wrong = [f"{step}, {lost}" for step, lost in told if int(step) % EVERY]
    if not is_first and not told:
        wrong.append("did not say what was lost")
    return sum(int(lost) for _, lost in told), wrong
