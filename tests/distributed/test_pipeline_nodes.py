"""Real pipelines under ``holdfast run``: a node is lost, a worker is stuck, the guard dies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import Run, free_port, running, wait_until

from holdfast.values import Regrouped, WorkerHung

pytestmark = [pytest.mark.processes, pytest.mark.alone]

JOB = Path(__file__).with_name("pipetrain.py")


@contextlib.contextmanager
def _training(folder: Path, *flags: str, workers: int = 4, **env: str) -> Iterator[Run]:
    paths = [JOB.parents[1], JOB.parents[2] / "benchmarks", os.environ.get("PYTHONPATH")]
    told: dict[str, Any] = env | {
        "FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, paths))),
    }
    with running(folder, "--nproc-per-node", str(workers), *flags, str(JOB), **told) as run:
        yield run


def _wait_for(folder: Path, ranks: range) -> None:
    wait_until(lambda: all((folder / f"rank {rank} trains").exists() for rank in ranks), 60)


def _digests(output: str) -> dict[int, str]:
    return {int(rank): digest for rank, digest in re.findall(r"rank (\d+) digest (\w+)", output)}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Train without faults and return the digest of every stage's parameters."""
    with _training(tmp_path_factory.mktemp("calm")) as run:
        assert run.finish() == 0, run.output
    digests = _digests(run.output)
    assert sorted(digests) == [0, 1, 2, 3]
    assert digests[0] == digests[2] != digests[1] == digests[3]
    return digests


def test_a_lost_node_changes_nothing(tmp_path: Path, calm: dict[int, str]) -> None:
    """A launcher is killed with its pipeline; the other node's ends with the bits of a run without faults."""
    where = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port())
    folders = [tmp_path / "first", tmp_path / "second"]
    with contextlib.ExitStack() as stack:
        runs = []
        for node, folder in enumerate(folders):
            folder.mkdir()
            flags = ("--node-rank", str(node), *where)
            runs.append(stack.enter_context(_training(folder, *flags, workers=2)))
        first, second = runs
        _wait_for(folders[1], range(2, 4))
        second.process.kill()
        assert first.finish() == 0, first.output
        wait_until(lambda: second.left_behind() == [], 10)
    assert _digests(first.output) == {rank: calm[rank] for rank in (0, 1)}
    assert sorted(_regroups(first)[-1].dead) == [2, 3]


def test_a_deadlocked_worker_is_ended_and_survived(tmp_path: Path, calm: dict[int, str]) -> None:
    """It waits for itself; the guard names it, and it alone."""
    with _training(tmp_path, STUCK="3") as run:
        _wait_for(tmp_path, range(4))
        (tmp_path / "stick").touch()
        assert run.finish() == 0, run.output
    assert _digests(run.output) == {rank: calm[rank] for rank in (0, 1, 2)}
    hung = [record.event for record in run.events().records if isinstance(record.event, WorkerHung)]
    assert [event.rank for event in hung] == [3]
    assert "computes for" in hung[0].evidence


def test_a_death_is_survived_without_the_guard(tmp_path: Path, calm: dict[int, str]) -> None:
    """Guard and worker are killed together; another guard follows and the log is whole."""
    with _training(tmp_path) as run:
        _wait_for(tmp_path, range(4))
        first_guard = run.guard_pid()
        os.kill(first_guard, signal.SIGKILL)
        os.kill(run.worker_pids()[0], signal.SIGKILL)
        assert run.finish() == 0, run.output
    assert _digests(run.output) == {rank: calm[rank] for rank in (1, 2, 3)}
    assert [event.dead for event in _regroups(run)] == [[], [0]]
    assert run.guard_pid() != first_guard


def _regroups(run: Run) -> list[Regrouped]:
    return [record.event for record in run.events().records if isinstance(record.event, Regrouped)]
