"""Pages and the processes behind them: the right one is read and killed, or none."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import wait_until
from holdfast.guard.pages import Page, Pages
from holdfast.job.status import StatusWriter, page_path
from holdfast.telemetry import Phase

pytestmark = pytest.mark.processes

WRITER = """
import os, sys, time
from pathlib import Path
from holdfast.job.status import StatusWriter, page_path
page = StatusWriter(page_path(Path(sys.argv[1]), 6), rank=6, pp=4, dp=2)
print(flush=True)
if sys.argv[2] == "sleeps":
    time.sleep(600)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while True:
    pass
"""


@contextlib.contextmanager
def _writer(folder: Path, does: str = "sleeps") -> Iterator[subprocess.Popen[bytes]]:
    """A process with the page of rank 6."""
    command = [sys.executable, "-c", WRITER, str(folder), does]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_a_page_shows_its_worker_and_what_the_kernel_says_of_it(tmp_path: Path) -> None:
    """Running, stopped, dead."""
    with _writer(tmp_path) as process:
        page = Page(page_path(tmp_path, 6))
        assert (page.rank, page.pp, page.pid) == (6, 4, process.pid)
        assert page.read().phase == Phase.OUTSIDE
        wait_until(lambda: page.state() == "S", "sleep")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: page.state() == "T", "the stop")
        page.kill()
        wait_until(lambda: page.state() is None, "its death, before anybody has waited for it")
        assert process.wait() == -signal.SIGKILL
        page.kill()
        assert page.state() is None
        page.close()


def test_a_number_changes_when_a_stopped_process_ran_in_between(tmp_path: Path) -> None:
    """Also when it had nothing to do; while it is stopped the number stays."""
    with _writer(tmp_path) as process:
        page = Page(page_path(tmp_path, 6))
        numbers = []
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            numbers += [page.runs(), page.runs()]
            process.send_signal(signal.SIGCONT)
            wait_until(lambda: page.state() == "S", "sleep")
        assert numbers[0] == numbers[1] < numbers[2] == numbers[3] < numbers[4] == numbers[5]
        page.close()


def test_a_page_of_one_that_had_the_number_before_is_refused(tmp_path: Path) -> None:
    """A process that started at another time did not write it."""
    StatusWriter(page_path(tmp_path, 0), rank=0, pp=1, dp=1)
    with page_path(tmp_path, 0).open("r+b") as file:
        file.seek(3 * 8)
        file.write((7).to_bytes(8, sys.byteorder))
    with pytest.raises(ValueError, match="is not the one that made"):
        Page(page_path(tmp_path, 0))


def test_a_page_of_the_dead_is_refused(tmp_path: Path) -> None:
    """There is nobody to look at."""
    with _writer(tmp_path) as process:
        process.kill()
        process.wait()
        with pytest.raises(ProcessLookupError):
            Page(page_path(tmp_path, 6))


def test_time_without_a_processor_is_known(tmp_path: Path) -> None:
    """Who is given one only when nobody else wants it waits nearly always, also before the wait is over."""
    (tmp_path / "other").mkdir()
    with _writer(tmp_path, "works") as process, _writer(tmp_path / "other", "works"):
        page = Page(page_path(tmp_path, 6))
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        assert page.starved_s() == 0.0
        began_s = time.monotonic()
        starved_s = []
        for _ in range(10):
            time.sleep(0.05)
            starved_s.append(page.starved_s())
        assert sum(starved_s) > 0.5 * (time.monotonic() - began_s), starved_s
        page.forget_starving()
        assert page.starved_s() == 0.0
        page.close()


def test_one_that_sleeps_is_not_starved(tmp_path: Path) -> None:
    """It does not ask for a processor."""
    with _writer(tmp_path):
        page = Page(page_path(tmp_path, 6))
        wait_until(lambda: page.state() == "S", "sleep")
        page.starved_s()
        time.sleep(0.1)
        assert page.starved_s() == 0.0
        page.close()


def test_a_folders_pages_are_those_of_living_workers(tmp_path: Path) -> None:
    """New ones and replaced ones are taken up, dead ones let go, broken ones and strangers passed over."""
    workers: set[int] = set()
    pages = Pages(tmp_path, lambda: workers)
    page_path(tmp_path, 1).write_bytes(b"HFPAGE1\0")
    StatusWriter(page_path(tmp_path, 2), rank=2, pp=1, dp=3)
    with _writer(tmp_path) as first:
        pages.refresh()
        assert len(pages) == 0
        workers.add(first.pid)
        pages.refresh()
        assert [page.pid for page in pages] == [first.pid]
        with _writer(tmp_path) as second:
            workers.add(second.pid)
            pages.refresh()
            assert [page.pid for page in pages] == [second.pid]
            second.kill()
            second.wait()
            pages.refresh()
            assert len(pages) == 0
