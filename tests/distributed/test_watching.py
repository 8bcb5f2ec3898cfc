"""A real job that gets slow, or hangs, under ``holdfast run``: noticed, named, and written down."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.observe.eventlog import read_run
from holdfast.values import AnyEvent, JobHung, JobSlowed, Probed, SuspectsNamed

pytestmark = [pytest.mark.processes, pytest.mark.alone]
JOB = ("-m", "holdfast.lab.jobs.dataparallel", "--device", "emulated", "--op-ms", "8")
SLEEPER = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(10_000):
    time.sleep(0.02)
    parameter.grad = torch.ones(1)
    if step == 40 and dist.get_rank() == 1:
        time.sleep(3600)
    dist.all_reduce(parameter.grad)
    optimizer.step()
"""


def _run(
    folder: Path, verb: str, *arguments: str, until: Callable[[AnyEvent], bool] = lambda _: False
) -> list[AnyEvent]:
    """Run a job to its end, or until a certain event is there, and return all events."""
    command = [sys.executable, "-m", "holdfast.cli", verb, *arguments]
    with (folder / "err.txt").open("w") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        try:
            for _ in range(240):
                try:
                    process.wait(0.5)
                    break
                except subprocess.TimeoutExpired:
                    if any(until(event) for event in _events(folder)):
                        break
        finally:
            process.terminate()
            process.wait(30)
    return _events(folder)


def _events(folder: Path) -> list[AnyEvent]:
    if not (folder / "run" / "events.jsonl").exists():
        return []
    return [record.event for record in read_run(folder / "run").records]


def _names_rank_1(event: AnyEvent) -> bool:
    """Say whether this is the name that the stalled data loader must get."""
    return isinstance(event, SuspectsNamed) and any(
        (suspect.ranks, suspect.cause) == ([1], "data_loading") for suspect in event.suspects
    )


def test_a_slow_rank_is_named_with_its_cause(tmp_path: Path) -> None:
    """The rank whose data loader stalls, and no other; the terminal says it too."""
    flags = ("--run-dir", "run", "--nproc-per-node", "3")
    fault = ("--fault", "data_stall rank=1 at=60 severity=0.2")
    events = _run(tmp_path, "inject", *fault, *flags, *JOB, "--steps", "400", until=_names_rank_1)
    assert any(isinstance(event, JobSlowed) for event in events)
    # On a machine that others use, something else may have been named before: it does not end the wait.
    assert any(map(_names_rank_1, events)), [e for e in events if isinstance(e, JobSlowed | SuspectsNamed)]
    said = (tmp_path / "err.txt").read_text()
    assert "holdfast: rank 1 on " in said
    assert "its data loading is slow" in said


def _is_hang(event: AnyEvent) -> bool:
    return isinstance(event, JobHung)


def test_a_hang_is_named_with_the_collective_that_was_not_entered(tmp_path: Path) -> None:
    """From the Flight Recorder dumps of all ranks, which are kept; with the line that the rank is in."""
    (tmp_path / "train.py").write_text(SLEEPER)
    events = _run(tmp_path, "run", "--run-dir", "run", "--nproc-per-node", "3", "train.py", until=_is_hang)
    hung = [event for event in events if isinstance(event, JobHung)]
    assert [(suspect.ranks, suspect.cause) for suspect in hung[0].suspects] == [([1], "hang")]
    assert "did not come to all_reduce" in hung[0].suspects[0].evidence[0]
    assert hung[0].suspects[0].victims == [0, 2]
    assert hung[0].stacks["1"][0].endswith("train.py:12 <module>")
    assert sorted(path.name for path in (tmp_path / "run" / "flight_recorder").iterdir()) == [
        "_dump_0",
        "_dump_1",
        "_dump_2",
    ]


def test_ranks_are_probed_before_the_first_step_where_asked_for(tmp_path: Path) -> None:
    """Compute of every rank, and every link of the ring; training follows."""
    flags = ("--precheck", "--run-dir", "run", "--nproc-per-node", "3")
    events = _run(tmp_path, "run", *flags, *JOB, "--steps", "5")
    probed = [event for event in events if isinstance(event, Probed)]
    assert len(probed) == 1
    assert sorted(probed[0].gemm_s) == ["0", "1", "2"]
    assert sorted(probed[0].links_s) == ["0-1", "1-2", "2-0"]
    assert probed[0].silent == []
