"""A worker of a real job slows down, is named, worked around, recovers, and all is as it was."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest
from runs import Run, running, wait_until

from holdfast.lab.fork import Job, Lab
from holdfast.values import AnyEvent, Applied, Decided, IncidentClosed

pytestmark = [pytest.mark.processes, pytest.mark.alone]

PIPELINE = ("holdfast.lab.jobs.adaptive", "--pp", "2", "--microbatches", "4", "--steps", "400")
SHARED = ("holdfast.lab.jobs.shared", "--batch", "16", "--steps", "300", "--step-every", "1")
Kind = TypeVar("Kind", bound=AnyEvent)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Runs jobs at once, without waiting for emulated accelerators: that changes no number."""
    with Lab() as made:
        yield made


def _calm(lab: Lab, job: tuple[str, ...]) -> str:
    """Return what a job prints when nobody is slow."""
    result = lab.run(Job(module=job[0], ranks=4, args=list(job[1:])), timeout_s=120)
    assert result.exit_codes == [0] * 4, result.logs
    return "\n".join(result.logs)


def _broken(folder: Path, fault: str, *flags: str) -> AbstractContextManager[Run]:
    """A run with a fault in it."""
    told = ("--fault", fault, "--run-dir", str(folder / "run"), "--nproc-per-node", "4")
    return running(folder, *told, *flags, verb="inject", has_run_dir=False)


def _told(run: Run, kind: type[Kind]) -> list[Kind]:
    return [record.event for record in run.events().records if isinstance(record.event, kind)]


def _digests(text: str) -> dict[str, str]:
    return dict(re.findall(r"rank (\d) digest (\w+)", text))


def _losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", text)]


def test_slow_worker_gets_less_work_until_it_recovers(tmp_path: Path, lab: Lab) -> None:
    """Without leave it says what it would do; given leave, it does that, and takes it back: the same bits."""
    fault = "slow_device rank=2 at=80 for=240 severity=2"
    with _broken(tmp_path, fault, "-m", *PIPELINE, "--op-ms", "4") as run:
        run.wait_for_steps()
        wait_until(lambda: bool(_told(run, Decided)), 90)
        command = [sys.executable, "-m", "holdfast.cli", "act", str(run.run_dir), "S2"]
        assert subprocess.run(command, check=False).returncode == 0
        assert run.finish(120) == 0, run.output
    dry, *decided = _told(run, Decided)
    assert (dry.level, dry.is_dry) == ("S2", True)
    # On the way back it may be seen half recovered, and get more to do before it gets all.
    assert {each.level for each in decided[:-1]} == {"S2"}, run.output
    assert decided[-1].level == "undo", run.output
    assert set(decided[0].speeds) == {2}
    assert 0.35 < decided[0].speeds[2] < 0.75
    assert decided[-1].speeds == {}
    assert [each.number for each in _told(run, Applied)] == [each.number for each in decided]
    assert len(_told(run, IncidentClosed)) == 1
    assert "would do S2" in run.output
    assert _digests(run.output) == _digests(_calm(lab, PIPELINE))


def test_ordinary_script_shares_out_its_micro_batches(tmp_path: Path, lab: Lab) -> None:
    """Three lines of ``holdfast.Shares`` in a DDP script: losses as with the even split, to rounding."""
    fault = "slow_device rank=1 at=80 for=140 severity=2"
    flags = ("--act", "S2", "-m", *SHARED, "--device", "emulated", "--op-ms", "3")
    with _broken(tmp_path, fault, *flags) as run:
        assert run.finish(180) == 0, run.output
    first, *_, last = _told(run, Decided)
    assert (first.level, set(first.speeds)) == ("S2", {1}), run.output
    # A rank that is nearly as fast as before has as much to do as the others.
    assert min(last.speeds.values(), default=1.0) > 0.85, run.output
    calm = _losses(_calm(lab, SHARED))
    assert len(calm) == 300
    assert _losses(run.output) == pytest.approx(calm, abs=2e-4)
