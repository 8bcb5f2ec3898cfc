"""``holdfast inject`` and ``holdfast demo`` as a person would use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import TRAIN, running

from holdfast.observe.eventlog import read_run
from holdfast.values import AttemptStarted, FaultInjected, FaultRelieved, RunEnded, WorkerDied

pytestmark = [pytest.mark.processes, pytest.mark.alone]


def _holdfast(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_job_is_started_under_a_fault_from_a_file(tmp_path: Path) -> None:
    """The fault comes and goes at its steps, and both are events of the run."""
    (tmp_path / "faults.toml").write_text(
        '[[fault]]\nkind = "gc_storm"\ntarget = 1\nat_step = 10\nfor_steps = 10\nseverity = 0.05\n'
    )
    flags = ("--faults", "faults.toml", "--run-dir", "run", "--nproc-per-node", "2")
    done = _holdfast("inject", *flags, str(TRAIN), cwd=tmp_path, STEPS="60")
    assert done.returncode == 0, done.stderr
    assert "holdfast: gc_storm of rank 1 x0.05 injected at step 10" in done.stderr
    records = read_run(tmp_path / "run").records
    steps = [r.event.step for r in records if isinstance(r.event, (FaultInjected, FaultRelieved))]
    assert len(steps) == 2
    assert 10 <= steps[0] < steps[1] <= 22
    assert isinstance(records[-1].event, RunEnded)


def test_a_live_job_takes_a_fault_from_outside(tmp_path: Path) -> None:
    """A job that was started by ``holdfast run`` hangs for a while and then goes on."""
    with running(tmp_path, "--nproc-per-node", "2", str(TRAIN), STEPS="200") as run:
        run.wait_for_steps()
        hang = _holdfast("inject", "--fault", "hang rank=1 for=10", str(run.run_dir), cwd=tmp_path)
        assert hang.returncode == 0, hang.stderr
        assert hang.stdout.splitlines()[0].startswith("hang of rank 1 injected")
        inside = _holdfast("inject", "--fault", "gc_storm rank=1", str(run.run_dir), cwd=tmp_path)
        assert inside.returncode == 2
        assert len(inside.stderr.splitlines()) == 1
        assert run.finish() == 0
    kinds = [type(record.event) for record in run.events().records]
    assert kinds.count(FaultInjected) == kinds.count(FaultRelieved) == 1


def test_a_fault_that_cannot_be_injected_leaves_the_job_alone(tmp_path: Path) -> None:
    """The job ends well and its log is complete; that the fault failed is said."""
    flags = ("--fault", "busy_neighbour rank=1 at=5", "--run-dir", "run", "--nproc-per-node", "2")
    done = _holdfast("inject", *flags, str(TRAIN), cwd=tmp_path)
    assert done.returncode == 0
    assert "a fault could not be injected" in done.stderr
    assert isinstance(read_run(tmp_path / "run").records[-1].event, RunEnded)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fault", "slow_gpu rank=1", "TRAIN"), "kind is 'slow_gpu', expected one of slow_device,"),
        (("--fault", "kill rank=7", "--nproc-per-node", "2", "TRAIN"), "target is rank 7"),
        (("--faults", "wrong.toml", "TRAIN"), "wrong.toml: fault 1: unknown field 'sevrity'"),
        (("--faults", "nope.toml", "TRAIN"), "nope.toml: cannot be read"),
        (("TRAIN",), "no fault given"),
        (("--fault", "kill rank=0", "nope.py"), "script nope.py does not exist"),
    ],
)
def test_bad_faults_get_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """Nothing is started, and no run directory is made."""
    (tmp_path / "wrong.toml").write_text('[[fault]]\nkind = "kill"\ntarget = 0\nsevrity = 2.0\n')
    done = _holdfast("inject", *(str(TRAIN) if word == "TRAIN" else word for word in arguments), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert not (tmp_path / "holdfast_runs").exists()


@pytest.mark.alone
def test_demo_slows_a_worker_and_kills_another(tmp_path: Path) -> None:
    """In a pipe it prints one line per event, the figures and the bill at the end, and draws its picture."""
    done = _holdfast("demo", "--ranks", "4", "--picture", "demo.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "2 pipelines x 2 stages",
        "watch it at http://127.0.0.1:",
        "fault: slow_device of rank 2 x2, from step 60",
        "does S2: saves",
        "rank 2 slow",
        "worked around",
        "the bill",
        "fault: kill of rank 3",
        "rank 3 died: SIGKILL",
        "3 workers go on from step",
        "step before",
        "worker 1.1 killed",
        "step after",
        "to the last bit as without the failure: 360 losses",
    ):
        assert words in " ".join(done.stdout.split())
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")
    [run_dir] = (tmp_path / "holdfast_runs").glob("[!.]*")
    assert "rank 3 died" in (run_dir / "report.md").read_text()
    kinds = [type(record.event) for record in read_run(run_dir).records]
    assert kinds.count(AttemptStarted) == kinds.count(WorkerDied) == 1
