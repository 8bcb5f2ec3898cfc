"""Random kills: launcher, guard or a worker is killed -9 at a random moment; what is left behind?

Each run is a real job (2 ranks, DDP, gloo, each worker with a data-loader process and a helper process).
Checked after every kill: no process is left, the event log reads without a broken line (a last line cut by
the kill is skipped and counted), the run's outcome is right, and a killed worker is the one that is named.
Every run prints its seed on failure; ``--only SEED`` replays one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

import common
from holdfast.errors import InputError
from holdfast.observe.eventlog import read_run

JOB = """
import subprocess, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
subprocess.Popen(["sleep", "600"])
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(torch.ones(400, 8), batch_size=4, num_workers=1):
    model(batch).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
    time.sleep(0.02)
dist.destroy_process_group()
"""
VICTIMS = ("launcher", "guard", "worker")
LATEST_S = 9.0
GONE_S = 10.0


def main() -> None:
    """Print the table; exit with 1 if anything was left behind."""
    parser = common.parser(__doc__)
    parser.add_argument("--runs", type=int, default=50, help="how many kills")
    parser.add_argument("--only", type=int, help="replay one seed")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    if options.only is not None:
        results.append(run_once(options.only))
    with common.progress() as bar:
        task = bar.add_task("random kills", total=options.runs)
        # A kill that comes after the end of its job is none: go on until there are as many as asked for.
        for seed in itertools.count(options.seed) if options.only is None else ():
            results.append(run_once(seed))
            bar.update(task, completed=sum(result["hit"] for result in results))
            if results[-1]["faults"]:
                print(f"seed {seed}: {results[-1]}", file=sys.stderr)
            if sum(result["hit"] for result in results) >= options.runs:
                break
    rows = [summarise(victim, [r for r in results if r["victim"] == victim]) for victim in VICTIMS]
    common.show("random kill -9", [r for r in rows if r["kills"]], [str(__doc__)], as_json=options.json)
    sys.exit(1 if any(result["faults"] for result in results) else 0)


def run_once(seed: int) -> dict[str, Any]:
    """Kill one process of one run, and look at what is left."""
    draw = random.Random(seed)
    kind, moment_s, number = draw.choice(VICTIMS), draw.uniform(0.0, LATEST_S), draw.randrange(2)
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.py"
        job.write_text(JOB)
        command = [sys.executable, "-m", "holdfast.cli", "run", "--run-dir", f"{folder}/run"]
        launcher = subprocess.Popen(
            [*command, "--nproc-per-node", "2", str(job)],
            env=os.environ | {common.MARK: folder},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(moment_s)
        victim = find(kind, number, launcher.pid, folder)
        if victim is not None:
            with contextlib.suppress(psutil.Error):
                victim.kill()
        try:
            _, errors = launcher.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            errors = "hung"
        gone_s = seconds_until_gone(folder)
        result = {"seed": seed, "victim": kind, "moment_s": moment_s, "hit": victim is not None}
        result |= {"gone_s": gone_s, **inspect(folder)}
        result["faults"] = faults(result, launcher.returncode, errors, number)
        common.end_all(folder)
        return result


def find(kind: str, number: int, launcher: int, mark: str) -> psutil.Process | None:
    """Return the process to kill, waiting for it where it has not been started yet."""
    if kind == "launcher":
        return psutil.Process(launcher) if psutil.pid_exists(launcher) else None
    word = "holdfast.guard.watcher" if kind == "guard" else "holdfast.job.boot"
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s and psutil.pid_exists(launcher):
        found = []
        for process in common.processes_of(mark):
            with contextlib.suppress(psutil.Error):
                if process.ppid() == launcher and word in process.cmdline():
                    found.append(process)
        rank = number if kind == "worker" else 0
        if len(found) > rank:
            return sorted(found, key=lambda process: process.pid)[rank]
        time.sleep(0.02)
    return None


def seconds_until_gone(mark: str) -> float | None:
    """Return how long processes of the run went on after the launcher's end; None if they still do."""
    began_s = time.monotonic()
    while common.processes_of(mark):
        if time.monotonic() - began_s > GONE_S:
            return None
        time.sleep(0.05)
    return time.monotonic() - began_s


def inspect(folder: str) -> dict[str, Any]:
    """Read the event log as any reader would."""
    try:
        content = read_run(Path(folder) / "run")
    except InputError:  # Killed before there was anything to write.
        return {"lines": 0, "cut": 0, "broken": 0}
    return {"lines": len(content.records), "cut": content.cut, "broken": len(content.broken)}


def faults(result: dict[str, Any], code: int | None, errors: str, number: int) -> list[str]:
    """Return what was wrong with a run, nothing if all was well."""
    found = []
    if result["gone_s"] is None:
        found.append("processes left behind")
    if result["broken"]:
        found.append("broken lines in the event log")
    if not result["hit"]:
        return found
    if result["victim"] == "guard" and code != 0:
        found.append(f"training did not survive its guard: exit code {code}: {errors[-300:]}")
    if result["victim"] == "worker":
        if code != 137:
            found.append(f"exit code {code}, expected 137")
        if f"rank {number} on host" not in (errors.splitlines() or [""])[-1]:
            found.append(f"rank {number} was killed, but the end says: {errors[-300:]}")
    return found


def summarise(victim: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Count what happened to one kind of victim."""
    gone = [result["gone_s"] for result in results if result["gone_s"] is not None]
    return {
        "victim": victim,
        "kills": sum(result["hit"] for result in results),
        "left_behind": sum(result["gone_s"] is None for result in results),
        "broken_logs": sum(result["broken"] > 0 for result in results),
        "cut_last_lines": sum(result["cut"] for result in results),
        "wrong_outcomes": sum(bool(result["faults"]) for result in results),
        "slowest_end_s": max(gone, default=0.0),
    }


if __name__ == "__main__":
    main()
