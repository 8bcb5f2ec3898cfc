"""Crash and restart: one worker is killed -9 once; how often does the job come back cleanly, and how fast?

Stock torchrun and ``holdfast run`` take turns on the same job (2 ranks, DDP, gloo, real compute). A run is
clean when it ends with 0 after exactly one restart. The time is from the kill to the end of the first step
of the new attempt, as the job itself notes it. A hung run is ended after ``--timeout`` seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

JOB = """
import os, pathlib, signal, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
notes, attempt = pathlib.Path(os.environ["NOTES"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def note(what): (notes / f"{what}_{attempt}").write_text(str(time.monotonic()))
dist.init_process_group("gloo")
rank = dist.get_rank()
note(f"start_{rank}")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
    if step == 0 and rank == 0: note("first")
    if attempt == 0 and rank == 1 and step == 10:
        note("crash"); os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
dist.destroy_process_group()
"""
LAUNCHERS = {"torchrun": "torch.distributed.run", "holdfast run": "holdfast.cli"}


def main() -> None:
    """Print the table."""
    parser = common.parser(__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=60)
    options = parser.parse_args()
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in LAUNCHERS}
    with common.progress() as bar:
        for _ in bar.track(range(options.runs), description="crash and restart"):
            for name in LAUNCHERS:
                outcomes[name].append(run_once(name, options.timeout))
    rows = [summarise(name, outcomes[name], outcomes["torchrun"]) for name in LAUNCHERS]
    common.show("crash to restart, 2 ranks, kill -9 of one", rows, [str(__doc__)], as_json=options.json)


def run_once(name: str, timeout_s: float) -> dict[str, Any]:
    """Run the job once and return how it went."""
    with tempfile.TemporaryDirectory() as folder:
        job, notes = Path(folder) / "job.py", Path(folder) / "notes"
        job.write_text(JOB)
        notes.mkdir()
        verb = ["run", "--run-dir", f"{folder}/run"] if name == "holdfast run" else []
        flags = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
        process = subprocess.Popen(
            [sys.executable, "-m", LAUNCHERS[name], *verb, *flags, str(job)],
            env=os.environ | {"NOTES": str(notes), common.MARK: folder},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        common.end_all(folder)
        process.wait()
        return judge(code, notes)


def judge(code: int | None, notes: Path) -> dict[str, Any]:
    """Say how a run went, from its exit code and the job's own notes."""
    attempts = len(list(notes.glob("start_0_*")))
    firsts = sorted(notes.glob("first_*"))
    is_clean = code == 0 and len(firsts) == 2 and firsts[1].name == "first_1"
    seconds = None
    if is_clean:
        seconds = float(firsts[1].read_text()) - float((notes / "crash_0").read_text())
    verdict = "clean" if is_clean else "extra restart" if code == 0 else "hung" if code is None else "died"
    return {"verdict": verdict, "attempts": attempts, "seconds": seconds}


def summarise(name: str, outcomes: list[dict[str, Any]], stock: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the verdicts of a launcher and compare its time with torchrun's."""
    verdicts = [outcome["verdict"] for outcome in outcomes]
    mine, theirs = _median(outcomes), _median(stock)
    return {
        "launcher": name,
        "clean": f"{verdicts.count('clean')} of {len(verdicts)}",
        "extra_restart": verdicts.count("extra restart"),
        "died": verdicts.count("died"),
        "hung": verdicts.count("hung"),
        "crash_to_first_step_s": mine,
        "ratio_to_torchrun": mine / theirs if mine and theirs else None,
    }


def _median(outcomes: list[dict[str, Any]]) -> float | None:
    seconds = [outcome["seconds"] for outcome in outcomes if outcome["seconds"] is not None]
    return statistics.median(seconds) if seconds else None


if __name__ == "__main__":
    main()
