"""A worker of a real pipeline slows down, is named, worked around, recovers, and all is as it was."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import Run, running

from holdfast.values import Applied, Decided, IncidentClosed

pytestmark = [pytest.mark.processes, pytest.mark.alone]

JOB = ("-m", "holdfast.lab.jobs.adaptive", "--pp", "2", "--microbatches", "4", "--op-ms", "8")
FAULT = "slow_device rank=2 at=80 for=200 severity=2"


def _flags(*more: str) -> tuple[str, ...]:
    return (*more, "--nproc-per-node", "4", *JOB, "--steps", "420")


def _told(run: Run, kind: type) -> list[object]:
    return [record.event for record in run.events().records if isinstance(record.event, kind)]


def _digests(run: Run) -> dict[str, str]:
    return dict(re.findall(r"rank (\d) digest (\w+)", run.output))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run in which nobody is slow."""
    with running(tmp_path_factory.mktemp("calm"), *_flags()) as run:
        assert run.finish() == 0, run.output
    return run


def test_slow_worker_gets_less_work_until_it_recovers(tmp_path: Path, calm: Run) -> None:
    """S2 and back again, while training goes on: the bits are those of the run in which nobody was slow."""
    with running(tmp_path, *_flags("--fault", FAULT, "--act", "S2"), verb="inject") as run:
        assert run.finish(240) == 0, run.output
    decided = [each for each in _told(run, Decided) if isinstance(each, Decided)]
    assert [each.level for each in decided] == ["S2", "undo"], run.output
    assert set(decided[0].speeds) == {2}
    assert 0.35 < decided[0].speeds[2] < 0.75
    assert decided[1].speeds == {}
    applied = [each for each in _told(run, Applied) if isinstance(each, Applied)]
    assert [each.number for each in applied] == [each.number for each in decided]
    assert len(_told(run, IncidentClosed)) == 1
    assert _digests(run) == _digests(calm)


def test_without_leave_it_says_what_it_would_do(tmp_path: Path, calm: Run) -> None:
    """Observe-only is the default; leave can be given, and taken back, while the run goes on."""
    with running(tmp_path, *_flags("--fault", FAULT), verb="inject") as run:
        run.wait_for_steps()
        command = [sys.executable, "-m", "holdfast.cli", "act", str(run.run_dir), "S2"]
        assert subprocess.run(command, check=False).returncode == 0
        assert subprocess.run([*command[:-1], "none"], check=False).returncode == 0
        assert run.finish(240) == 0, run.output
    [decided] = [each for each in _told(run, Decided) if isinstance(each, Decided)]
    assert (decided.level, decided.is_dry) == ("S2", True)
    assert _told(run, Applied) == []
    assert "would do S2" in run.output
    assert _digests(run) == _digests(calm)


SHARED = ("-m", "holdfast.lab.jobs.shared", "--device", "emulated", "--op-ms", "4", "--step-every", "1")


def _losses(run: Run) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", run.output)]


def test_ordinary_script_shares_out_its_micro_batches(tmp_path: Path) -> None:
    """Three lines of ``holdfast.Shares`` in a DDP script: losses as with the even split, to rounding."""
    flags = ("--nproc-per-node", "4", *SHARED, "--batch", "32", "--steps", "240")
    (tmp_path / "even").mkdir()
    with running(tmp_path / "even", *flags) as even:
        assert even.finish(120) == 0, even.output
    fault = ("--fault", "slow_device rank=1 at=60 for=120 severity=2", "--act", "S2")
    with running(tmp_path, *fault, *flags, verb="inject") as run:
        assert run.finish(240) == 0, run.output
    decided = [each for each in _told(run, Decided) if isinstance(each, Decided)]
    assert [each.level for each in decided] == ["S2", "undo"], run.output
    assert set(decided[0].speeds) == {1}
    assert len(_losses(run)) == len(_losses(even)) == 240
    assert _losses(run) == pytest.approx(_losses(even), abs=2e-4)
