"""CPU faults take CPU time from their target, by the kernel's own account, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.errors import InputError
from holdfast.faults import Fault
from holdfast.lab.fork import Job, Lab, Result
from holdfast.lab.injectors import Injector
from holdfast.lab.injectors.neighbour import BusyNeighbour
from holdfast.lab.injectors.quota import CpuQuota
from holdfast.lab.injectors.stopping import Duty, Hang

from .measure import of_rank
from .needs import need
from .waiting import becomes_stopped, runs_again

pytestmark = [pytest.mark.processes, pytest.mark.alone]


@pytest.fixture
def spinner() -> Iterator[psutil.Process]:
    """A process that uses all the CPU it gets, on one core."""
    core = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


def _cpu_share(process: psutil.Process, duration_s: float = 1.0) -> float:
    """Return the share of a core that a process got, by the kernel's count."""
    started_s, before = time.monotonic(), sum(process.cpu_times()[:2])
    time.sleep(duration_s)
    return float(sum(process.cpu_times()[:2]) - before) / (time.monotonic() - started_s)


def _queueing(process: psutil.Process, duration_s: float = 1.0) -> float:
    """Return the time that a process waited for a core over the time that it ran, as the scheduler counts."""
    ran, queued = _schedstat(process)
    time.sleep(duration_s)
    ran_after, queued_after = _schedstat(process)
    return (queued_after - queued) / max(1, ran_after - ran)


def _schedstat(process: psutil.Process) -> tuple[int, int]:
    ran, queued, _ = Path(f"/proc/{process.pid}/schedstat").read_text().split()
    return int(ran), int(queued)


INJECTORS: dict[str, Callable[[int, float], Injector]] = {
    "cgroup": CpuQuota,
    "sigstop": Duty,
    "process": BusyNeighbour,
}


@pytest.mark.parametrize("via", [pytest.param("cgroup", marks=pytest.mark.root), "sigstop", "process"])
def test_target_gets_less_cpu_until_relief(spinner: psutil.Process, via: str) -> None:
    """A factor of 8 leaves the target about an eighth of its core, whoever else is there; relief ends it."""
    if via == "cgroup":
        need("cgroup")
    children = psutil.Process().children()
    injector = INJECTORS[via](spinner.pid, 8.0)
    injector.apply()
    try:
        time.sleep(0.2)  # Helpers are starting.
        during = _cpu_share(spinner)
    finally:
        injector.relieve()
        injector.relieve()
    assert psutil.Process().children() == children
    assert during < 0.25
    assert _cpu_share(spinner) > 1.2 * during


@pytest.mark.root
def test_quota_throttles_and_its_group_goes(spinner: psutil.Process) -> None:
    """The kernel counts throttled periods, and no group outlives the relief."""
    need("cgroup")
    quota = CpuQuota(spinner.pid, 4.0)
    quota.apply()
    try:
        time.sleep(0.5)
        assert quota.throttled() > 10
    finally:
        quota.relieve()
    assert not quota.group.exists()
    assert spinner.is_running()


@pytest.mark.root
def test_quota_of_a_dead_target_is_cleaned_up(spinner: psutil.Process) -> None:
    """A target that dies under its quota does not keep the group alive."""
    need("cgroup")
    quota = CpuQuota(spinner.pid, 2.0)
    quota.apply()
    spinner.kill()
    quota.relieve()
    assert not quota.group.exists()


def test_neighbours_make_the_target_queue(spinner: psutil.Process) -> None:
    """Under 7 busy neighbours the target waits for its core about 7 times as long as it runs."""
    neighbour = BusyNeighbour(spinner.pid, 8.0)
    alone = _queueing(spinner)
    neighbour.apply()
    try:
        time.sleep(0.2)  # Helpers are starting.
        crowded = _queueing(spinner)
    finally:
        neighbour.relieve()
    assert crowded > max(3.5, alone)


def test_neighbour_needs_a_pinned_target() -> None:
    """A target that may flee to another core is refused in one line."""
    need("cores")
    with pytest.raises(InputError, match=r"expected one core \(pin the workers"):
        BusyNeighbour(os.getpid(), 2.0).apply()


def test_hang_stops_the_target_and_relief_continues_it(spinner: psutil.Process) -> None:
    """A hung process is stopped, not dead."""
    hang = Hang(spinner.pid)
    hang.apply()
    try:
        assert becomes_stopped(spinner)
        assert _cpu_share(spinner, 0.2) == 0
    finally:
        hang.relieve()
        hang.relieve()
    assert _cpu_share(spinner, 0.3) > 0.1


def test_nobody_stays_stopped_when_the_helper_is_ended(spinner: psutil.Process) -> None:
    """The death of whoever hangs a process continues it, as the helper's last act."""
    code = (
        "import sys, time; from holdfast.lab.injectors.stopping import Hang\n"
        f"Hang({spinner.pid}).apply(); time.sleep(0.5); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as lab:
        assert lab.stdout is not None
        lab.stdout.readline()
        assert becomes_stopped(spinner)
        lab.send_signal(signal.SIGKILL)
    assert runs_again(spinner)


FAULTS = {
    "cgroup": Fault(kind="cpu_quota", target=1, at_step=20, for_steps=16, severity=4.0, via="cgroup"),
    "sigstop": Fault(kind="cpu_quota", target=1, at_step=20, for_steps=16, severity=4.0, via="sigstop"),
    # Many rivals: whatever else runs on the machine flees from them to the peer's core.
    "process": Fault(kind="busy_neighbour", target=1, at_step=20, for_steps=12, severity=8.0),
}


@pytest.mark.parametrize("via", [pytest.param("cgroup", marks=pytest.mark.root), "sigstop", "process"])
def test_rank_on_a_starved_core_computes_longer_and_its_peer_waits(lab: Lab, via: str) -> None:
    """Real compute, one core each: the target's own time grows, the peer's waiting does.

    How much is judged by own time over CPU time, which is 4 when a thread gets a quarter of its core: a
    machine that is busy otherwise stretches the calm phases, too, but not the CPU time.
    """
    need("cores", *(["cgroup"] if via == "cgroup" else []))
    fault = FAULTS[via]
    args = ["--steps", "60", "--width", "128", "--pin"]
    result: Result = lab.run(Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=args), [fault])
    assert result.exit_codes == [0, 0], result.logs
    target, peer = (of_rank(result, rank, lambda row: row.own_s, fault, beside=15) for rank in (1, 0))
    cpu = of_rank(result, 1, lambda row: row.cpu_s, fault, beside=15)
    assert target.during / cpu.during > 1 + (fault.severity - 1) / 2, (target, cpu)
    assert target.growth > 2 * abs(peer.growth), (target, peer)
    assert of_rank(result, 0, lambda row: row.wait_s, fault, beside=15).growth > target.growth / 2
