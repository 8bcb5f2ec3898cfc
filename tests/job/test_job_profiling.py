"""Profiling on demand: between two steps, over the steps that were named, and never in the script's way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from helpers import PATIENCE_S, wait_until
from holdfast.job.files import replace_file
from holdfast.job.profiling import Profiling, profile_path, profiled_path
from holdfast.telemetry import ProfileOrder, ProfileResult

JOB = """
import sys, time
from pathlib import Path
from holdfast.job.attach import attach

folder, steps, theirs = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
observer = attach(folder, rank=3)
import torch

def own_function():
    time.sleep(0.002)

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
(folder / "ready").touch()
while not (folder / "profile.json").exists():
    time.sleep(0.01)
time.sleep(1.2)
own = None
for step in range(steps):
    if theirs.startswith("from") and step == int(theirs.removeprefix("from")):
        own = torch.profiler.profile()
        own.start()
    model(torch.ones(4, 8)).sum().backward()
    own_function()
    optimizer.step()
if own is not None:
    own.stop()
    own.export_chrome_trace(str(folder / "theirs.json"))
print("errors", observer.errors)
"""


def run(tmp_path: Path, order: ProfileOrder, *, steps: int = 40, theirs: str = "none") -> str:
    """Run a job that has its order before its first step, and return what it said."""
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(tmp_path), str(steps), theirs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until((tmp_path / "ready").exists)
        replace_file(profile_path(tmp_path), msgspec.json.encode(order))
        out, err = job.communicate(timeout=PATIENCE_S)
    finally:
        job.kill()
        job.wait()
    assert (job.returncode, "Traceback" in err) == (0, False), err
    return out


def make_order(tmp_path: Path, first: int, last: int) -> ProfileOrder:
    return ProfileOrder(
        id="one", ranks=[3], first_step=first, last_step=last, folder=str(tmp_path / "traces")
    )


def result(tmp_path: Path) -> ProfileResult:
    return msgspec.json.decode(profiled_path(tmp_path, "one", 3).read_bytes(), type=ProfileResult)


def test_profile_over_named_steps(tmp_path: Path) -> None:
    """The trace has as many optimizer steps as were asked for, and the script's own functions."""
    assert run(tmp_path, make_order(tmp_path, 10, 19)) == "errors 0\n"
    told = result(tmp_path)
    assert (told.outcome, told.steps, told.error) == ("done", 10, None)
    assert told.blocked_s > 0
    assert told.trace is not None
    events = json.loads(Path(told.trace).read_text())["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert sum(name.startswith("Optimizer.step#SGD") for name in names) == 10
    assert sum("own_function" in name for name in names) == 10


def test_an_order_that_comes_too_late(tmp_path: Path) -> None:
    """It is not carried out over other steps instead."""
    run(tmp_path, make_order(tmp_path, 0, 5))
    assert result(tmp_path).outcome == "late"


@pytest.mark.parametrize("start", [5, 15])
def test_the_script_has_a_profiler_of_its_own(tmp_path: Path, start: int) -> None:
    """Whether it is there before ours or comes meanwhile: theirs works, and ours is not."""
    run(tmp_path, make_order(tmp_path, 10, 19), theirs=f"from{start}")
    told = result(tmp_path)
    assert (told.outcome, told.trace) == ("busy", None)
    events = json.loads((tmp_path / "theirs.json").read_text())["traceEvents"]
    count = sum(event.get("name", "").startswith("Optimizer.step#SGD") for event in events)
    assert count == 40 - start


def test_a_job_that_ends_meanwhile(tmp_path: Path) -> None:
    """It ends as if nothing had been asked."""
    assert run(tmp_path, make_order(tmp_path, 10, 100)) == "errors 0\n"
    assert result(tmp_path).outcome == "busy"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Training goes on, and the reason is told."""
    (tmp_path / "traces").write_text("a file")
    run(tmp_path, make_order(tmp_path, 10, 12))
    told = result(tmp_path)
    assert told.outcome == "failed"
    assert told.error is not None


def test_an_order_for_others_is_not_ours(tmp_path: Path) -> None:
    """Nothing happens at its steps."""
    profiling = Profiling(tmp_path, rank=3)
    order = ProfileOrder(id="one", ranks=[0, 1], first_step=1, last_step=2, folder=str(tmp_path))
    profiling.take(order)
    for step in range(5):
        profiling.end_step(step)
    assert list(tmp_path.iterdir()) == []
