"""Dead workers come back under ``holdfast run --rejoin``: the bits of the run in which nobody died."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from runs import Run, running, wait_until

from holdfast.values import Regrouped, WorkerDied, WorkerReturned

pytestmark = [pytest.mark.processes, pytest.mark.alone]

JOB = ("-m", "holdfast.lab.jobs.adaptive", "--pp", "2", "--microbatches", "2", "--op-ms", "8")


def _flags(steps: int, *more: str) -> tuple[str, ...]:
    return ("--nproc-per-node", "4", *more, *JOB, "--steps", str(steps))


def _digests(run: Run) -> dict[int, str]:
    found = re.findall(r"rank (\d) digest (\w+)", run.output)
    return {int(rank): digest for rank, digest in found}


def _losses(run: Run) -> dict[int, str]:
    return dict(re.findall(r"step (\d+) loss (\S+)", run.output))


def _regroups(run: Run) -> list[Regrouped]:
    return [record.event for record in run.events().records if isinstance(record.event, Regrouped)]


def _pid_of(run: Run, rank: int) -> int:
    """Return the process that has the rank now."""
    returned = [r.event for r in run.events().records if isinstance(r.event, WorkerReturned)]
    mine = [event.pid for event in returned if event.rank == rank]
    return mine[-1] if mine else run.worker_pids()[rank]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run in which nobody dies."""
    with running(tmp_path_factory.mktemp("calm"), *_flags(250)) as run:
        assert run.finish() == 0, run.output
    return run


def test_a_killed_worker_comes_back_with_the_same_bits(tmp_path: Path, calm: Run) -> None:
    """It is started again, takes over its peer's state while the others train, and all end with one model."""
    with running(tmp_path, *_flags(250, "--rejoin")) as run:
        run.wait_for_steps()
        os.kill(run.worker_pids()[3], signal.SIGKILL)
        assert run.finish(120) == 0, run.output
    back = [event for event in _regroups(run) if event.newcomers]
    assert [event.newcomers for event in back] == [[3]], run.output
    assert back[0].members == [0, 1, 2, 3]
    assert _digests(run) == _digests(calm)
    assert _losses(run) == _losses(calm)
    assert "rank 3 took over" in run.output


def test_a_worker_that_dies_again_comes_back_again(tmp_path: Path, calm: Run) -> None:
    """Also when its donor dies; generations only go up."""
    with running(tmp_path, *_flags(250, "--rejoin")) as run:
        run.wait_for_steps()
        os.kill(run.worker_pids()[2], signal.SIGKILL)
        wait_until(lambda: any(event.newcomers == [2] for event in _regroups(run)), 60)
        os.kill(_pid_of(run, 2), signal.SIGKILL)
        os.kill(run.worker_pids()[1], signal.SIGKILL)
        assert run.finish(120) == 0, run.output
    generations = [event.generation for event in _regroups(run)]
    assert generations == sorted(set(generations))
    assert len([r for r in run.events().records if isinstance(r.event, WorkerDied)]) == 3
    assert _digests(run) == _digests(calm), run.output


def test_without_the_flag_the_dead_stay_away(tmp_path: Path) -> None:
    """As before."""
    with running(tmp_path, *_flags(60)) as run:
        run.wait_for_steps()
        os.kill(run.worker_pids()[3], signal.SIGKILL)
        assert run.finish(120) == 0, run.output
    assert not [r for r in run.events().records if isinstance(r.event, WorkerReturned)]
    assert _regroups(run)[-1].members == [0, 1, 2]
