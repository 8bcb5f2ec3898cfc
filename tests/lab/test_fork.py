"""The fork server starts jobs fast, dies cleanly and comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from holdfast.errors import HoldfastError, InputError
from holdfast.faults import Fault
from holdfast.lab.fork import Job, Lab

from .waiting import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.alone]
SHORT = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=["--steps", "5"])
LONG = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=["--steps", "100000"])


@pytest.fixture(scope="module")
def own_lab() -> Iterator[Lab]:
    """A lab whose server may be killed."""
    with Lab() as lab:
        yield lab


def _workers(server: int) -> list[psutil.Process]:
    return psutil.Process(server).children()


def _are_gone(processes: list[psutil.Process]) -> bool:
    return all(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in processes)


def test_killed_worker_is_reported_and_its_record_stays(lab: Lab) -> None:
    """A killed rank has its signal as exit code, its peer fails, and the steps before are on record."""
    result = lab.run(LONG, [Fault(kind="kill", target=1, at_step=10)])
    assert result.exit_codes == [1, -signal.SIGKILL]
    assert "RuntimeError" in result.logs[0]
    assert [row.step for row in result.rows[1]][:10] == list(range(10))
    assert [event.fault.kind for event in result.events] == ["kill"]


def test_hung_worker_goes_on_after_relief(lab: Lab) -> None:
    """A hang costs one step the time of the hang, and the run ends as it should."""
    job = Job(module=SHORT.module, ranks=2, args=["--steps", "30", "--device", "emulated", "--op-ms", "2"])
    result = lab.run(job, [Fault(kind="hang", target=1, at_step=10, for_steps=30)])
    assert result.exit_codes == [0, 0]
    durations = sorted(row.duration_s for row in result.rows[1][1:])
    assert durations[-1] > 10 * durations[len(durations) // 2]
    assert [event.type for event in result.events] == ["begin", "end"]


def test_hang_without_end_runs_into_the_timeout(lab: Lab) -> None:
    """A job that does not end is killed, stopped workers included."""
    result = lab.run(LONG, [Fault(kind="hang", target=0, at_step=5)], timeout_s=3)
    assert result.is_timed_out
    assert result.exit_codes == [-signal.SIGKILL] * 2


def test_target_beyond_the_job_is_refused_before_the_start(lab: Lab) -> None:
    """No process is started for a fault that cannot be."""
    with pytest.raises(InputError, match="target is rank 2, expected a rank of this job: 0 to 1"):
        lab.run(SHORT, [Fault(kind="kill", target=2)])


def test_kill_of_the_server_leaves_no_orphan_and_the_next_run_works(own_lab: Lab) -> None:
    """Workers die with their server, the run says so, and the lab starts another server."""
    server = own_lab.server_pid
    assert server is not None
    workers: list[psutil.Process] = []

    def kill_server() -> None:
        wait_for(lambda: len(_workers(server)) == 2)
        workers.extend(_workers(server))
        time.sleep(0.3)
        os.kill(server, signal.SIGKILL)

    killer = threading.Thread(target=kill_server)
    killer.start()
    with pytest.raises(HoldfastError, match="fork server ended with -9"):
        own_lab.run(LONG)
    killer.join()
    assert len(workers) == 2
    assert wait_for(lambda: _are_gone(workers))
    assert own_lab.run(SHORT).exit_codes == [0, 0]
    assert own_lab.server_pid != server


SCRIPT = """
from holdfast.lab.fork import Job, Lab
from holdfast.faults import Fault
with Lab() as lab:
    print(lab.server_pid, flush=True)
    job = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=["--steps", "100000", "--pin"])
    lab.run(job, [Fault(kind="hang", target=0, at_step=3), Fault(kind="busy_neighbour", target=1, at_step=2)])
"""


def test_kill_of_the_lab_leaves_no_orphan() -> None:
    """Server, workers, stopped or not, and busy neighbours end with the process that wanted them."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server = psutil.Process(int(process.stdout.readline()))
    lab = psutil.Process(process.pid)
    assert wait_for(lambda: len(lab.children(recursive=True)) == 5)  # Server, workers, two helpers.
    family = lab.children(recursive=True)
    process.kill()
    process.wait()
    process.stdout.close()
    assert server in family
    assert wait_for(lambda: _are_gone(family)), family
