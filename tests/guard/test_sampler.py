"""Counters of real processes: what is done to them shows, and only to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers import wait_until
from holdfast.detect.counters import Sample
from holdfast.detect.host import HostStrain, strain_between
from holdfast.detect.signs import explain
from holdfast.guard.kept import Kept
from holdfast.guard.sampler import Sampler
from holdfast.lab.injectors.quota import CpuQuota
from lab.needs import need

pytestmark = [pytest.mark.processes, pytest.mark.alone]

Start = Callable[[str], "subprocess.Popen[str]"]
SPIN = "while True: pass"
SLEEP = "time.sleep(1000)"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes on one core that run a line of code, and ends them."""
    core = max(os.sched_getaffinity(0))
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        setup = f"import os, sys, threading, time\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\n"
        process = subprocess.Popen(
            [sys.executable, "-c", setup + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        hear(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def hear(process: subprocess.Popen[str]) -> None:
    """Wait for a line."""
    assert process.stdout is not None
    assert process.stdout.readline(), "the process ended"


def tell(process: subprocess.Popen[str]) -> None:
    """Let a process go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def strain(sampler: Sampler, duration_s: float = 1.0) -> HostStrain:
    """Return what happened in a while."""
    before = sampler.sample()
    time.sleep(duration_s)
    return strain_between(before, sampler.sample())


def test_a_busy_neighbour_makes_its_victim_wait_and_nobody_else(start: Start) -> None:
    """Two that compute on one core wait for each other; one that sleeps there does not wait."""
    victim, _, idle = start(SPIN), start(SPIN), start(SLEEP)
    found = strain(Sampler(lambda: {0: victim.pid, 1: idle.pid}))
    waited, calm = (found.ranks[rank].main_run_queue_share for rank in (0, 1))
    assert waited is not None
    assert calm is not None
    assert waited > 0.2
    assert waited > 5 * calm
    [sign] = explain(found.ranks, {})[0]
    assert (sign.cause, sign.against) == ("cpu_contention", "others")


def test_waits_of_many_threads_add_up_but_the_longest_is_told_too(start: Start) -> None:
    """Threads that want one core together wait longer than there was time, each alone not."""
    worker = start(
        "import hashlib\n"
        "def spin():\n"
        "    while True: hashlib.sha256(bytes(1 << 22)).digest()\n"  # Lets go of the interpreter's lock.
        "for _ in range(4): threading.Thread(target=spin).start()"
    )
    found = strain(Sampler(lambda: {0: worker.pid})).ranks[0]
    assert found.run_queue_share is not None
    assert found.main_run_queue_share is not None
    assert found.main_run_queue_share <= 1.0 < found.run_queue_share
    assert found.run_queue_share > 1.5 * found.main_run_queue_share


@pytest.mark.root
def test_a_quota_shows_as_throttling(start: Start) -> None:
    """A worker with a tenth of a core is held up, one without a quota is not; its group can go on relief."""
    need("cgroup")
    worker, free = start(SPIN), start(SLEEP)
    sampler = Sampler(lambda: {0: worker.pid, 1: free.pid})
    quota = CpuQuota(worker.pid, 10.0)
    quota.apply()
    try:
        found = strain(sampler).ranks
    finally:
        quota.relieve()
    shares = [found[rank].throttled_share for rank in (0, 1)]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] > shares[1] + 0.2  # The machine itself may have a quota, which holds up both.
    assert (found[0].held_share or 0.0) > 0.2
    assert not quota.group.exists(), "an open file must not keep the group"
    groups = sampler.sample().processes[0].groups
    assert groups is not None
    assert str(quota.group) not in groups


def test_touching_new_memory_shows_as_faults(start: Start) -> None:
    """Every page that is touched first is a minor fault."""
    worker = start(
        "sys.stdin.readline()\nx = bytearray(b'x') * (64 << 20)\nprint(flush=True)\ntime.sleep(1000)"
    )
    sampler = Sampler(lambda: {0: worker.pid})
    before = sampler.sample().processes[0]
    tell(worker)
    hear(worker)
    after = sampler.sample().processes[0]
    assert after.minor_faults > before.minor_faults
    assert after.rss_bytes - before.rss_bytes > 32 << 20


def test_a_stopped_process_is_in_state_t(start: Start) -> None:
    """The state is that of the moment."""
    worker = start(SLEEP)
    sampler = Sampler(lambda: {0: worker.pid})
    wait_until(lambda: sampler.sample().processes[0].state == "S", "sleeping")
    worker.send_signal(signal.SIGSTOP)
    # It may be seen waking up first, to be stopped.
    wait_until(lambda: sampler.sample().processes[0].state == "T", "stopping")


def test_writes_are_counted(start: Start, tmp_path: Path) -> None:
    """Bytes that go to storage count for who wrote them."""
    worker = start(
        "sys.stdin.readline()\n"
        f"with open({str(tmp_path / 'data')!r}, 'wb') as file:\n"
        "    file.write(bytes(1 << 20))\n    file.flush()\n    os.fsync(file.fileno())\n"
        "print(flush=True)\ntime.sleep(1000)"
    )
    sampler = Sampler(lambda: {0: worker.pid})
    before = sampler.sample().processes[0].written_bytes
    tell(worker)
    hear(worker)
    after = sampler.sample().processes[0].written_bytes
    if before is None or after is None:
        pytest.skip("this kernel does not count what processes read and write")
    if _kind_of_disk(tmp_path) in ("tmpfs", "overlay"):
        pytest.skip("files here are not on a disk")
    assert after - before >= 1 << 20


def _kind_of_disk(folder: Path) -> str:
    return subprocess.run(
        ["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_threads_that_come_and_go_are_followed(start: Start) -> None:
    """As many threads are seen as there are, and their files are let go of when they end."""
    worker = start(
        "go = threading.Event()\n"
        "for _ in range(5): threading.Thread(target=go.wait).start()\n"
        "print(flush=True)\nsys.stdin.readline()\ngo.set()\n"
        "for each in threading.enumerate()[1:]: each.join()\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\nprint(flush=True)\ntime.sleep(1000)"
    )
    sampler = Sampler(lambda: {0: worker.pid})
    hear(worker)
    many = sampler.sample().processes[0].threads
    tell(worker)
    hear(worker)
    few = sampler.sample().processes[0].threads
    assert many is not None
    assert few is not None
    assert (len(many), len(few)) == (6, 2)
    assert many.keys() & few.keys() == {worker.pid}


def test_a_worker_that_dies_is_left_out(start: Start) -> None:
    """From its death on, also before anybody has asked for its exit code; another in its place is new."""
    first, second = start(SLEEP), start(SLEEP)
    pids = {0: first.pid, 1: second.pid}
    sampler = Sampler(lambda: pids)
    before = sampler.sample()
    assert before.processes.keys() == {0, 1}
    first.kill()
    wait_until(lambda: sampler.sample().processes.keys() == {1}, "leaving out the dead")
    first.wait()
    assert sampler.sample().processes.keys() == {1}
    pids[0] = start(SLEEP).pid
    after = sampler.sample()
    assert after.processes.keys() == {0, 1}
    assert strain_between(before, after).ranks.keys() == {1}


def test_no_file_stays_open_for_who_is_gone(start: Start) -> None:
    """Files are let go of with their worker, be it dead or only of no interest, and with the sampler."""
    first, second = start(SLEEP), start(SLEEP)
    none = open_files()
    pids: dict[int, int] = {}
    sampler = Sampler(lambda: pids)
    sampler.sample()
    of_machine = open_files()
    for _ in range(3):
        pids |= {0: first.pid, 1: second.pid}
        sampler.sample()
        assert open_files() > of_machine
        pids.clear()
        for _ in range(3):  # Groups are let go of a little later.
            sampler.sample()
        assert open_files() <= of_machine + 1  # The outermost group may be everybody's.
    pids[0] = first.pid
    first.kill()
    wait_until(lambda: not sampler.sample().processes, "leaving out the dead")
    assert open_files() <= of_machine + 1
    sampler.close()
    assert open_files() == none


def open_files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_a_process_may_have_few_files(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be kept open, the counters are the same."""
    worker = start(SLEEP)
    kept = Sampler(lambda: {0: worker.pid})
    monkeypatch.setattr("holdfast.guard.sampler.Kept", lambda: Kept(most=0))
    none_kept = Sampler(lambda: {0: worker.pid})
    assert none_kept.sample().processes == kept.sample().processes
    assert len(none_kept._kept) == 0


def test_this_machine_is_counted() -> None:
    """A node has what every Linux has, and its counters grow."""
    sampler = Sampler(lambda: {0: os.getpid()})
    before, after = sampler.sample(), sampler.sample()
    assert before.node.total_ticks is not None
    assert before.node.available_bytes is not None
    assert (before.node.context_switches or 0) <= (after.node.context_switches or 0)
    assert before.at_s < after.at_s
    threads = after.processes[0].threads
    assert threads is None or threading.get_native_id() in threads


def test_not_knowing_the_workers_is_no_reason_to_fail() -> None:
    """A caller that cannot tell who there is still learns about the machine."""

    def broken() -> dict[int, int]:
        raise OSError("the log cannot be read")

    sample = Sampler(broken).sample()
    assert isinstance(sample, Sample)
    assert sample.processes == {}
