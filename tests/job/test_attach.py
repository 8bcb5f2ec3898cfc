"""Attaching: one ring record per update, and silence when anything goes wrong."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from helpers import run_python, wait_until
from holdfast.job import attach as attaching
from holdfast.job.attach import ATTACHED_ENV, ATTEMPT_ENV, RINGS_ENV, attach, watch
from holdfast.job.observer import Observer
from holdfast.job.ring import RingReader, RingWriter, ring_path
from holdfast.observe.eventlog import read_run
from holdfast.values import GuardStarted, RunEnded

WATCHED = """
import os, time
from pathlib import Path
import holdfast
holdfast.watch("run")
holdfast.watch("run")
while not (Path("run") / "events.jsonl").exists():
    time.sleep(0.01)
print(os.environ["HOLDFAST_RINGS"])
"""


class Optimizer:
    """All that the hook needs of one: it can be referred to weakly."""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process to which nothing is attached."""
    monkeypatch.setattr(attaching, "_attached", None)
    # Hooks are for good: a test that needs them starts a process.
    monkeypatch.setattr(Observer, "install", lambda observer: None)
    monkeypatch.setattr("holdfast.job.attendant.Attendant.start", lambda attendant: None)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in (RINGS_ENV, ATTEMPT_ENV, ATTACHED_ENV, "TORCHELASTIC_RESTART_COUNT", "RANK"):
        # Set first: only then is what the test itself leaves there taken back at its end.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def _observer(folder: Path) -> Observer:
    return Observer(folder, rank=0)


def test_every_update_is_one_record(tmp_path: Path) -> None:
    """Steps count from 0, the first has no duration, the others the time since the one before."""
    observer, optimizer = _observer(tmp_path), Optimizer()
    for _ in range(3):
        observer.mark_update(optimizer, (), {})
    steps = RingReader(ring_path(tmp_path, 0)).read()
    assert [step.step for step in steps] == [0, 1, 2]
    assert steps[0].duration_s == 0
    for before, after in itertools.pairwise(steps):
        assert after.duration_s == pytest.approx(after.ended_s - before.ended_s, abs=1e-8)


def test_the_first_of_several_optimizers_sets_the_beat(tmp_path: Path) -> None:
    """Updates of the second are not steps, until the first is gone."""
    observer, first, second = _observer(tmp_path), Optimizer(), Optimizer()
    for _ in range(3):
        observer.mark_update(first, (), {})
        observer.mark_update(second, (), {})
    assert observer.steps == 3
    del first
    observer.mark_update(second, (), {})
    assert (observer.steps, observer.errors) == (4, 0)


def test_an_error_in_the_hook_is_counted_and_kept_from_the_loop(tmp_path: Path) -> None:
    """An optimizer that cannot be referred to weakly costs a record, nothing else."""
    observer = _observer(tmp_path)
    observer.mark_update(object(), (), {})
    assert (observer.steps, observer.errors) == (0, 1)


def test_attaching_twice_is_attaching_once(fresh: None, tmp_path: Path) -> None:
    """The second call returns the first one's hook and leaves its ring alone."""
    first = attach(tmp_path, rank=0)
    inode = ring_path(tmp_path, 0).stat().st_ino
    assert first is not None
    assert attach(tmp_path, rank=0) is first
    assert ring_path(tmp_path, 0).stat().st_ino == inode


@pytest.mark.parametrize(
    ("env", "attempt"),
    [
        ({}, 0),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2),
        ({ATTEMPT_ENV: "3", "TORCHELASTIC_RESTART_COUNT": "2"}, 3),
        ({ATTEMPT_ENV: "many"}, 0),
    ],
)
def test_the_ring_knows_its_attempt(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], attempt: int
) -> None:
    """Our launcher's count comes before torch's."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    attach(tmp_path, rank=0)
    assert RingReader(ring_path(tmp_path, 0)).attempt == attempt


def test_a_folder_that_is_gone_means_no_hook_and_no_error(fresh: None, tmp_path: Path) -> None:
    """Training goes on without a ring."""
    assert attach(tmp_path / "gone", rank=0) is None


def test_watch_under_our_launcher_uses_its_rings(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is the launcher's, the rank the worker's."""
    monkeypatch.setenv(RINGS_ENV, str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    watch()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["links_3.page", "orders.page", "rank_3.ring"]


@pytest.mark.parametrize("rank", ["9" * 30, "9" * 300])
def test_watch_never_raises(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    """A rank that fits into no ring, and one that fits into no file name, end in silence."""
    monkeypatch.setenv(RINGS_ENV, str(tmp_path))
    monkeypatch.setenv("RANK", rank)
    watch()
    assert list(tmp_path.glob("*.ring")) == []


def test_watch_is_a_name_of_the_package_and_unknown_names_are_not() -> None:
    """``holdfast.watch`` is found when asked for."""
    assert holdfast.watch is watch
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'nothing'"):
        holdfast.nothing  # noqa: B018 - the look is the test.


@pytest.mark.processes
def test_watch_alone_starts_a_guard_that_ends_with_the_process(tmp_path: Path) -> None:
    """It leaves a run directory that says so, and no rings."""
    done = run_python("-c", WATCHED, cwd=tmp_path, env={"MASTER_PORT": f"{os.getpid()}"})
    rings = Path(done.stdout.strip())
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: not rings.exists(), "the end of the rings")
    kinds = [type(record.event) for record in read_run(tmp_path / "run").records]
    assert kinds == [GuardStarted, RunEnded]


@pytest.mark.processes
def test_a_child_that_watches_too_leaves_its_parents_ring_alone(tmp_path: Path) -> None:
    """Spawned data loaders run the script's first lines again; the rank's ring stays the rank's."""
    child = "import holdfast; holdfast.watch()"
    writer = RingWriter(ring_path(tmp_path, 0), rank=0)
    inode = ring_path(tmp_path, 0).stat().st_ino
    env = {RINGS_ENV: str(tmp_path), "RANK": "0", ATTACHED_ENV: str(os.getpid())}
    done = subprocess.run([sys.executable, "-c", child], env=os.environ | env, check=False)
    writer.append(0, 0, 0)
    assert (done.returncode, ring_path(tmp_path, 0).stat().st_ino) == (0, inode)


@pytest.mark.processes
def test_a_forked_child_does_not_write_into_its_parents_ring(tmp_path: Path) -> None:
    """One ring has one writer: updates made by a fork are not the rank's."""
    observer, optimizer = _observer(tmp_path), Optimizer()
    observer.mark_update(optimizer, (), {})
    child = os.fork()
    if child == 0:
        observer.mark_update(optimizer, (), {})
        os._exit(0)
    os.waitpid(child, 0)
    assert [step.step for step in RingReader(ring_path(tmp_path, 0)).read()] == [0]
