"""The watchdog: a worker that hangs is killed, with its event; nobody else ever is."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from helpers import wait_until
from holdfast.guard.watchdog import EVERY_S, Watchdog
from holdfast.job.status import page_path
from holdfast.telemetry import Step
from holdfast.values import AnyEvent, WorkerHung
from pagejobs import Job

pytestmark = [pytest.mark.processes, pytest.mark.alone]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job without workers, whose processes are ended afterwards."""
    job = Job(tmp_path)
    yield job
    job.end()


# --- with a guard -----------------------------------------------------------------------------


def test_a_stopped_worker_is_killed_and_no_other(job: Job) -> None:
    """Its event says who, where and why; the others train on."""
    for _ in range(4):
        job.add()
    job.guard()
    job.stop(2)
    wait_until(lambda: job.dead() == [2], "the death of rank 2")
    assert job.workers[2].returncode == -signal.SIGKILL
    (hung,) = job.hung()
    expected = WorkerHung(
        rank=2,
        pid=job.workers[2].pid,
        phase="compute",
        op="0F1.0",
        waited_s=hung.waited_s,
        evidence=hung.evidence,
    )
    assert re.fullmatch(r"stopped by a signal for 0\.\d\d s while others run", hung.evidence)
    assert (hung, hung.waited_s > 0.4, job.dead()) == (expected, True, [2])


def test_a_suspended_job_is_left_alone(job: Job) -> None:
    """All stopped for many steps and continued one after the other: only one stopped later is killed."""
    for _ in range(4):
        job.add()
    job.guard()
    for _ in range(2):
        job.stop(0, 1, 2, 3)
        time.sleep(1.5)
        assert job.dead() == []
        job.go_on(0, 1, 2, 3)
        time.sleep(0.2)
    job.stop(1)
    wait_until(job.dead, "a death")
    assert ([hung.rank for hung in job.hung()], job.dead()) == ([1], [1])


def test_a_worker_slowed_down_by_stops_is_left_alone(job: Job) -> None:
    """Stopped for 19 of every 20 ms, it is stopped at nearly every look, and still gets on."""
    for _ in range(4):
        job.add()
    job.guard()
    until_s = time.monotonic() + 2.5
    while time.monotonic() < until_s:
        job.stop(0)
        time.sleep(0.019)
        job.go_on(0)
        time.sleep(0.001)
    job.stop(3)
    wait_until(job.dead, "a death")
    assert ([hung.rank for hung in job.hung()], job.dead()) == ([3], [3])


def test_a_worker_that_computes_for_ever_is_killed_and_not_those_who_wait_for_it(job: Job) -> None:
    """Rank 0 waits for a gradient that rank 1 does not make; ranks 2 and 3 wait in collectives."""
    for phase, op in (("RECEIVE", 1), ("COMPUTE", 1), ("REDUCE", 2), ("SETTLE", 2)):
        job.add(phase, op)
    job.guard()
    wait_until(job.dead, "a death")
    (hung,) = job.hung()
    assert (hung.rank, hung.phase, hung.op, job.dead()) == (1, "compute", "1B0.0", [1])


@pytest.mark.parametrize(
    ("flag", "env"),
    [
        ("--no-kill-hung", {}),
        pytest.param("--attached", {"HOLDFAST_KILL_HUNG": "false"}, id="without a launcher of ours"),
        pytest.param("--attached", {"HOLDFAST_KILL_HUNG": "of"}, id="not understood"),
    ],
)
def test_with_the_setting_off_a_hang_is_only_noted_and_once(job: Job, flag: str, env: dict[str, str]) -> None:
    """Nobody is killed, whoever guards."""
    for _ in range(2):
        job.add()
    job.guard(flag, env=env)
    job.stop(0)
    wait_until(job.hung, "the event")
    psutil.Process(job.guards()[0]).kill()
    wait_until(lambda: len(job.guards()) == 2, "another guard")
    time.sleep(2.5)
    assert [(hung.rank, hung.is_killed) for hung in job.hung()] == [(0, False)]
    assert job.dead() == []


def test_a_guard_that_was_restarted_follows_on(job: Job) -> None:
    """It knows how long steps take, and kills who hangs."""
    for _ in range(2):
        job.add()
    job.guard()
    psutil.Process(job.guards()[0]).kill()
    wait_until(lambda: len(job.guards()) == 2, "another guard")
    job.stop(0)
    wait_until(job.dead, "a death")
    (hung,) = job.hung()
    assert (hung.rank, job.dead()) == (0, [0])


# --- with a clock of its own ------------------------------------------------------------------

Watched = Callable[..., tuple[Watchdog, list[AnyEvent]]]


@pytest.fixture
def watched(job: Job) -> Watched:
    """Returns a watchdog that has seen the job's workers make steps, and the list of what it tells."""

    def make(*, kills: bool = True) -> tuple[Watchdog, list[AnyEvent]]:
        told: list[AnyEvent] = []
        watchdog = Watchdog(job.rings, tell=told.append, workers=list, kills=kills)
        steps = itertools.product(range(5), range(len(job.workers)))
        watchdog.learn(
            Step(rank=rank, step=step, ended_s=0.0, duration_s=0.4 if step else 0.0) for step, rank in steps
        )
        watchdog.refresh()
        return watchdog, told

    return make


def _look(watchdog: Watchdog, *, from_s: float, for_s: float) -> None:
    for number in range(round(for_s / EVERY_S)):
        watchdog.look(from_s + number * EVERY_S)


def _stop_for_sure(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)


def test_a_late_look_starts_the_clocks_anew(job: Job, watched: Watched) -> None:
    """Looks that come more than a second late never find anybody; regular ones do."""
    job.add("COMPUTE")
    job.add("REDUCE")
    watchdog, told = watched(kills=False)
    for number in range(20):
        watchdog.look(number * 1.1)
    assert told == []
    _look(watchdog, from_s=22.0, for_s=5.0)
    assert [event.rank for event in told if isinstance(event, WorkerHung)] == [0]


def test_a_hang_is_told_again_when_it_is_another_one(job: Job, watched: Watched) -> None:
    """One that went on in between has hung twice."""
    worker = job.add()
    job.add()
    watchdog, told = watched(kills=False)
    page = page_path(job.rings, 0).read_bytes
    for number in range(2):
        _stop_for_sure(worker)
        _look(watchdog, from_s=number * 10.0, for_s=2.0)
        assert len(told) == number + 1
        before = page()
        job.go_on(0)
        wait_until(lambda before=before: page() != before, "a step")  # type: ignore[misc]


def test_what_another_guard_told_is_done_and_not_told_again(job: Job, watched: Watched) -> None:
    """The other one may have died between the event and the kill."""
    worker = job.add()
    job.add()
    watchdog, told = watched()
    watchdog.follow_on([WorkerHung(rank=0, pid=worker.pid, phase="compute", waited_s=1.0, evidence="")])
    _stop_for_sure(worker)
    _look(watchdog, from_s=0.0, for_s=2.0)
    assert (worker.wait(), told) == (-signal.SIGKILL, [])


def test_a_worker_that_nobody_knows_is_not_watched(job: Job, watched: Watched) -> None:
    """A page alone is no proof: a ring or the event log has to name the same process."""
    worker = job.add()
    job.add()
    (job.rings / "rank_0.ring").unlink()
    watchdog, told = watched()
    _stop_for_sure(worker)
    _look(watchdog, from_s=0.0, for_s=2.0)
    assert (told, job.dead()) == ([], [])


def test_without_pages_there_is_nothing_to_look_for(job: Job, watched: Watched) -> None:
    """A guard of other jobs looks once a second, and again so when all workers are gone."""
    watchdog, told = watched()
    needs = [watchdog.is_needed]
    worker = job.add()
    watchdog.refresh()
    needs.append(watchdog.is_needed)
    worker.kill()
    worker.wait()
    watchdog.look(0.0)
    watchdog.refresh()
    needs.append(watchdog.is_needed)
    assert (needs, told) == ([False, True, False], [])


def test_a_new_attempt_begins_without_a_history(job: Job, watched: Watched) -> None:
    """The time of the first steps says nothing about those of another attempt."""
    job.add("COMPUTE")
    job.add("REDUCE")
    watchdog, told = watched(kills=False)
    watchdog.learn([Step(rank=0, step=0, ended_s=0.0, duration_s=0.0, attempt=1)])
    _look(watchdog, from_s=0.0, for_s=10.0)
    assert told == []
