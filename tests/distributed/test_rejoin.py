"""Dead workers come back under ``holdfast run --rejoin``: the bits of the run in which nobody died."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import Run, running, wait_until

from holdfast.lab.fork import Job, Lab
from holdfast.values import Regrouped, WorkerDied, WorkerReturned

pytestmark = [pytest.mark.processes, pytest.mark.alone]

JOB = ("holdfast.lab.jobs.adaptive", "--pp", "2", "--microbatches", "2", "--steps", "100")
LONG = ("--steps", "250")
"""The later word counts."""
SLOWLY = ("--op-ms", "8")
"""Where somebody must have time to come back before the job is over; it changes no number."""


def _flags(*more: str) -> tuple[str, ...]:
    return ("--nproc-per-node", "4", *more, "-m", *JOB)


def _digests(output: str) -> dict[int, str]:
    found = re.findall(r"rank (\d) digest (\w+)", output)
    return {int(rank): digest for rank, digest in found}


def _losses(output: str) -> dict[int, str]:
    return dict(re.findall(r"step (\d+) loss (\S+)", output))


def _regroups(run: Run) -> list[Regrouped]:
    return [record.event for record in run.events().records if isinstance(record.event, Regrouped)]


def _pid_of(run: Run, rank: int) -> int:
    """Return the process that has the rank now."""
    returned = [r.event for r in run.events().records if isinstance(r.event, WorkerReturned)]
    mine = [event.pid for event in returned if event.rank == rank]
    return mine[-1] if mine else run.worker_pids()[rank]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """What starts jobs without the launcher."""
    with Lab() as lab:
        yield lab


@pytest.fixture(scope="module")
def calm(lab: Lab) -> str:
    """What is printed where nobody dies."""
    return _printed(lab, *JOB[1:])


@pytest.fixture(scope="module")
def long_calm(lab: Lab) -> str:
    """The same for the longer job."""
    return _printed(lab, *JOB[1:], *LONG)


def _printed(lab: Lab, *args: str) -> str:
    result = lab.run(Job(module=JOB[0], ranks=4, args=list(args)), timeout_s=120)
    assert result.exit_codes == [0] * 4, result.logs
    return "\n".join(result.logs)


def test_a_worker_that_dies_again_comes_back_again(tmp_path: Path, long_calm: str) -> None:
    """Also when its donor dies; generations only go up."""
    with running(tmp_path, *_flags("--rejoin"), *SLOWLY, *LONG) as run:
        run.wait_for_steps()
        os.kill(run.worker_pids()[2], signal.SIGKILL)
        wait_until(lambda: any(event.newcomers == [2] for event in _regroups(run)), 60)
        os.kill(_pid_of(run, 2), signal.SIGKILL)
        os.kill(run.worker_pids()[1], signal.SIGKILL)
        assert run.finish(120) == 0, run.output
    generations = [event.generation for event in _regroups(run)]
    assert generations == sorted(set(generations))
    assert len([r for r in run.events().records if isinstance(r.event, WorkerDied)]) == 3
    assert _digests(run.output) == _digests(long_calm), run.output
    assert _losses(run.output) == _losses(long_calm)
    assert "rank 2 took over" in run.output


def test_a_worker_that_nobody_started_joins_and_takes_the_free_place(tmp_path: Path, long_calm: str) -> None:
    """Under a rank of its own; the job is the same to the last bit."""
    with running(tmp_path, *_flags(), *SLOWLY, *LONG) as run:
        run.wait_for_steps()
        os.kill(run.worker_pids()[2], signal.SIGKILL)
        joined = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", "join", str(run.run_dir)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.finish(120) == 0, run.output
    assert joined.returncode == 0, joined.stderr
    back = [event for event in _regroups(run) if event.newcomers]
    assert [(event.newcomers, event.places) for event in back] == [([4], [0, 1, 3, 2])], run.output
    found = re.findall(r"rank 4 digest (\w+)", joined.stdout)
    assert found == [_digests(long_calm)[2]], joined.stdout


def test_two_workers_change_places_and_the_bits_stay(tmp_path: Path, calm: str) -> None:
    """Each goes on with the other's stage."""
    swap = "10:0.0:1.1"
    with running(tmp_path, *_flags(), "--swap", swap) as run:
        assert run.finish(120) == 0, run.output
    first, second = (int(name[0]) * 2 + int(name[2]) for name in swap.split(":")[1:])
    expected = _digests(calm)
    expected[first], expected[second] = expected[second], expected[first]
    assert _digests(run.output) == expected, run.output
    assert _losses(run.output) == _losses(calm)
    last = _regroups(run)[-1]
    assert [last.places[first], last.places[second]] == [second, first]


def test_a_worker_that_dies_while_it_changes_places_leaves_the_others_as_they_were(
    tmp_path: Path, calm: str
) -> None:
    """The second regroup of rank 3 is the one of the exchange: it dies before it has sent anything."""
    flags = ("--swap", "10:0.0:1.1", "--die", "3:regroup:0:2")
    with running(tmp_path, *_flags(), *flags) as run:
        assert run.finish(120) == 0, run.output
    assert _regroups(run)[-1].places == [0, 1, 2]
    assert _digests(run.output) == {rank: digest for rank, digest in _digests(calm).items() if rank != 3}


# --- from a checkpoint ------------------------------------------------------------------------


def test_a_job_whose_stage_is_gone_goes_on_from_its_checkpoint(tmp_path: Path, calm: str) -> None:
    """It says what was lost, and ends with the same bits."""
    saving = ("--checkpoints", str(tmp_path / "checkpoints"), "--checkpoint-every", "10")
    with running(tmp_path, *_flags("--max-restarts", "1"), *SLOWLY, *saving) as run:
        wait_until((tmp_path / "checkpoints" / "step-000000030").exists, 60)
        for rank in (1, 3):
            os.kill(run.worker_pids()[rank], signal.SIGKILL)
        assert run.finish(120) == 0, run.output
    told = re.findall(r"goes on from step (\d+): (\d+) steps? of the last run", run.output)
    assert len(told) == 1, run.output
    assert int(told[0][0]) % 10 == 0
    assert _digests(run.output) == _digests(calm)


def test_a_broken_checkpoint_is_refused_by_name_and_the_one_before_is_used(tmp_path: Path, calm: str) -> None:
    """Of a launcher that was killed, and everything with it."""
    folder = tmp_path / "checkpoints"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    saving = ("--checkpoints", str(folder), "--checkpoint-every", "10")
    with running(tmp_path / "first", *_flags(), *SLOWLY, *saving) as run:
        wait_until((folder / "step-000000040").exists, 60)
        os.kill(run.process.pid, signal.SIGKILL)
    newest = sorted(folder.glob("step-*"))[-1]
    part = newest / "stage_1.pt"
    part.write_bytes(part.read_bytes()[:-100])
    with running(tmp_path / "second", *_flags(), *saving) as again:
        assert again.finish(120) == 0, again.output
    assert f"{part} is not as it was written" in again.output
    assert f"goes on from step {int(newest.name[5:]) - 10}" in again.output
    assert _digests(again.output) == _digests(calm)
