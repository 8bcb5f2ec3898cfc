"""The director follows a job by its rings, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.errors import InputError
from holdfast.faults import Fault
from holdfast.job.attach import RINGS_ENV
from holdfast.job.ring import RingWriter, ring_path
from holdfast.lab.control import LAB_ENV, ControlFile, control_path
from holdfast.lab.director import Director, Scene
from holdfast.lab.recorder import read_rows
from holdfast.lab.targets import RingTargets
from holdfast.values import FaultInjected, FaultRelieved

from .needs import need
from .waiting import becomes_stopped, runs_again, wait_for

Events = list[FaultInjected | FaultRelieved]


def _write_steps(ring: RingWriter, first: int, last: int) -> None:
    for step in range(first, last + 1):
        ring.append(step, time.monotonic_ns(), 20_000_000)


def _wait_for_events(events: Events, count: int) -> None:
    assert wait_for(lambda: len(events) >= count), events


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """A process to aim at."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_target_is_in_the_step_after_the_last_finished(tmp_path: Path) -> None:
    """Rings tell finished steps; a new ring of a restarted worker starts over."""
    targets = RingTargets(tmp_path, {0: 7})
    assert targets.step(0) is None
    ring = RingWriter(ring_path(tmp_path, 0), rank=0)
    assert (targets.step(0), targets.step_s(0)) == (0, None)
    _write_steps(ring, 0, 4)
    assert (targets.step(0), targets.step_s(0), targets.pid(0)) == (5, 0.02, 7)
    RingWriter(ring_path(tmp_path, 0), rank=0)
    assert targets.step(0) == 0


def test_pid_comes_from_the_ring_when_nobody_gives_it(tmp_path: Path) -> None:
    """A ring names its writer."""
    targets = RingTargets(tmp_path)
    assert targets.pid(0) is None
    ring = RingWriter(ring_path(tmp_path, 0), rank=0)
    _write_steps(ring, 0, 0)
    assert targets.pid(0) == os.getpid()


@pytest.mark.processes
@pytest.mark.alone
def test_hang_comes_at_its_step_and_goes_after_as_many_median_steps(
    tmp_path: Path, sleeper: psutil.Process
) -> None:
    """The target is stopped when it reaches the step, and runs again after for_steps times its step time."""
    ring = RingWriter(ring_path(tmp_path, 0), rank=0)
    fault = Fault(kind="hang", target=0, at_step=3, for_steps=10)
    events: Events = []
    scene = Scene(folder=tmp_path, world_size=1)
    with Director(
        [fault], RingTargets(tmp_path, {0: sleeper.pid}), scene, on_event=events.append
    ) as director:
        _write_steps(ring, 0, 1)
        time.sleep(0.05)
        assert events == []
        _write_steps(ring, 2, 2)
        _wait_for_events(events, 1)
        assert becomes_stopped(sleeper)
        _wait_for_events(events, 2)
        assert runs_again(sleeper)
        assert director.is_done
    assert events == [FaultInjected(fault=fault, step=3, via="sigstop"), FaultRelieved(fault=fault, step=3)]


@pytest.mark.processes
@pytest.mark.alone
def test_leaving_relieves_everything(tmp_path: Path, sleeper: psutil.Process) -> None:
    """An endless fault ends with its director, and the control files are empty again."""
    ring = RingWriter(ring_path(tmp_path, 0), rank=0)
    faults = [Fault(kind="hang", target=0, at_step=1), Fault(kind="data_stall", target=0, at_step=1)]
    events: Events = []
    control = ControlFile(control_path(tmp_path, 0))
    scene = Scene(folder=tmp_path, world_size=1)
    with Director(faults, RingTargets(tmp_path, {0: sleeper.pid}), scene, on_event=events.append):
        assert control.read() == faults[1:]
        _write_steps(ring, 0, 0)
        _wait_for_events(events, 2)
        assert becomes_stopped(sleeper)
    assert runs_again(sleeper)
    assert control.read() == []
    assert [event.type for event in events] == ["begin", "begin", "end", "end"]


@pytest.mark.processes
@pytest.mark.alone
def test_fault_that_cannot_be_applied_is_raised_at_the_end(tmp_path: Path, sleeper: psutil.Process) -> None:
    """An unpinned target makes the director give up, and whoever stops it learns why."""
    need("cores")
    ring = RingWriter(ring_path(tmp_path, 0), rank=0)
    _write_steps(ring, 0, 5)
    fault = Fault(kind="busy_neighbour", target=0)
    scene = Scene(folder=tmp_path, world_size=1)
    director = Director([fault], RingTargets(tmp_path, {0: sleeper.pid}), scene, on_event=lambda event: None)
    director.start()
    _write_steps(ring, 6, 6)
    assert wait_for(lambda: director.error is not None)
    with pytest.raises(InputError, match="expected one core"):
        director.stop()


def test_fault_that_is_over_does_not_come_back_with_a_restarted_worker(
    tmp_path: Path, sleeper: psutil.Process
) -> None:
    """A new worker counts its steps from 0, and its control file has only what is still to come."""
    ring = RingWriter(ring_path(tmp_path, 0), rank=0)
    pids = {0: sleeper.pid}
    fault = Fault(kind="data_stall", target=0, at_step=2, for_steps=2, severity=0.1)
    scene = Scene(folder=tmp_path, world_size=1)
    control = ControlFile(control_path(tmp_path, 0))
    events: Events = []
    with Director([fault], RingTargets(tmp_path, pids), scene, on_event=events.append):
        _write_steps(ring, 0, 5)
        _wait_for_events(events, 2)
        assert control.read() == [fault]
        pids[0] = os.getpid()
        assert wait_for(lambda: control.read() == [])


def test_target_beyond_the_job_is_refused(tmp_path: Path) -> None:
    """A director is not even made for a rank that is not there."""
    scene = Scene(folder=tmp_path, world_size=2)
    with pytest.raises(InputError, match="target is rank 5"):
        Director([Fault(kind="kill", target=5)], RingTargets(tmp_path), scene, on_event=lambda event: None)


@pytest.mark.processes
@pytest.mark.alone
def test_fault_can_be_given_to_a_live_job_under_torchrun(tmp_path: Path) -> None:
    """A job that somebody else launched, with our worker in it, takes a fault while it runs."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "holdfast.lab.worker", "-m", "holdfast.lab.jobs.ddp"]
    command += ["--device", "emulated", "--op-ms", "3", "--steps", "60"]
    env = {**os.environ, LAB_ENV: str(tmp_path), RINGS_ENV: str(tmp_path), "OMP_NUM_THREADS": "1"}
    targets = RingTargets(tmp_path)
    events: Events = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
        assert wait_for(lambda: (targets.step(1) or 0) >= 10, timeout_s=60)
        fault = Fault(kind="data_stall", target=1, for_steps=5, severity=0.1)
        scene = Scene(folder=tmp_path, world_size=2)
        with Director([fault], targets, scene, on_event=events.append):
            output, _ = job.communicate(timeout=60)
    assert job.returncode == 0, output
    assert sum(row.data_s > 0.05 for row in read_rows(tmp_path, 1)) in (4, 5)
    assert not any(row.data_s > 0.05 for row in read_rows(tmp_path, 0))
    assert [event.type for event in events] == ["begin", "end"]
