"""Harmless: whatever fails in what observes a job, the job does not notice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import run_python, wait_until
from holdfast.job.attach import RINGS_ENV
from pairs import Run, run_ranks

pytestmark = pytest.mark.processes

WAITING = """
import os, sys
open("rings", "w").write(os.environ["HOLDFAST_RINGS"])
sys.stdin.readline()
"""
LOOP = """
import torch
torch.manual_seed(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The job without us, and with us while everything of ours breaks."""
    folder, script = tmp_path_factory.mktemp("harm"), Path(__file__).parent.parent / "harmjob.py"
    plain, watched = (run_ranks(script, folder, is_watched=is_watched) for is_watched in (False, True))
    return plain, watched


def test_the_job_ends_well_and_says_nothing(runs: tuple[Run, Run]) -> None:
    """Exit code 0 and nothing on the terminal, with every warning an error."""
    for run in runs:
        assert (run.codes, run.stderr) == ([0, 0], ["", ""])


def test_losses_are_the_same_whatever_breaks(runs: tuple[Run, Run]) -> None:
    """One method after the other, at random, and with the folder of the rings gone: to the last bit."""
    plain, watched = runs
    for rank in (0, 1):
        losses = watched.told[rank]["losses"]
        whole = plain.told[rank]["losses"][""]
        assert [name for name, each in losses.items() if each != whole] == []
        assert len(losses) > watched.told[rank]["methods"] >= 30
        assert watched.told[rank]["errors"] == plain.told[rank]["errors"]


def test_what_broke_was_counted(runs: tuple[Run, Run]) -> None:
    """The faults were real: where a method is called at all in a step, its failures show in our count."""
    counted = runs[1].told[0]["counted"]
    used = ["Tally.clock", "Tally.take", "Channels.of_group", "Cycle.mark_update"]
    used += ["Cycle.mark_batch", "RingWriter.append", "Tally.begin", "Tally.lasted", "random 0"]
    assert {name for name in used if not counted[name]} == set()


def test_errors_of_the_user_come_out_as_they_are(runs: tuple[Run, Run]) -> None:
    """An interrupt, an exit and an error of a data set are the very objects, with nothing behind them."""
    assert runs[1].told[0]["errors"][:3] == [
        "KeyboardInterrupt ('now',) None True",
        "ValueError ('mine',) None True",
        "SystemExit (3,) None True",
    ]


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the plain loop prints without us."""
    return run_python("-c", LOOP, cwd=tmp_path_factory.mktemp("plain")).stdout


def test_a_full_disk_means_no_ring_and_the_same_training(
    tmp_path: Path, small_disk: Path, losses: str
) -> None:
    """The hooks are not even installed."""
    (tmp_path / "loop.py").write_text(LOOP)
    full = run_python("-m", "holdfast.job.boot", "loop.py", cwd=tmp_path, env={RINGS_ENV: str(small_disk)})
    assert (full.returncode, full.stderr, full.stdout) == (0, "", losses)


def test_a_guard_that_is_killed_leaves_the_training_alone(tmp_path: Path, losses: str) -> None:
    """The script that started it goes on and ends as if it were there."""
    (tmp_path / "loop.py").write_text(WAITING + LOOP)
    command = [sys.executable, "-m", "holdfast.job.boot", "loop.py"]
    foreign = ("RANK", "LOCAL_RANK", "HOLDFAST_", "TORCHELASTIC_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env |= {"HOLDFAST_RUN_DIR": str(tmp_path / "run"), "MASTER_PORT": f"{os.getpid()}7"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=env, text=True, **pipes) as process:  # type: ignore[call-overload]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: children.read_text().strip(), "the guard")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        said, complained = process.communicate("go\n", timeout=60)
    shutil.rmtree((tmp_path / "rings").read_text())  # Which is what a guard does when it is over.
    assert (process.returncode, complained, said) == (0, "", losses)
