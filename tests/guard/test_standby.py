"""A process in waiting becomes a worker like any other."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from desks import Desk

from helpers import Ears, wait_until
from holdfast.guard.standby import Standby
from holdfast.guard.workers import Workers
from holdfast.job.messages import NEWCOMER_ENV

pytestmark = [
    pytest.mark.processes,
    pytest.mark.alone,  # To import torch takes seconds, and more where others do the same.
    # Files of finished streams are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

BOOT = [sys.executable, "-P", "-u", "-m", "holdfast.job.boot"]
TELLS = """
import os, sys
print("torch" in sys.modules, sys.argv[1:], os.environ.get("RANK"), os.environ.get("OLD"), sys.stdin.read())
"""


@pytest.fixture
def desk(tmp_path: Path, ears: Ears) -> Iterator[Desk]:
    """A desk that is cleared afterwards."""
    desk = Desk(tmp_path, ears)
    yield desk
    desk.close()


@pytest.fixture
def standby() -> Iterator[Standby]:
    """Nobody is left in waiting afterwards."""
    standby = Standby(BOOT)
    yield standby
    standby.close()


def _dead(desk: Desk, script: str, *arguments: str) -> Workers:
    """Return a worker that has ended, whose script is another one from now on."""
    path = desk.folder / "train.py"
    path.write_text("raise SystemExit(1)\n")
    workers = desk.start([*BOOT, str(path), *arguments])
    desk.end(workers)
    path.write_text(script)
    return workers


def _waiting() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if _is_waiting(each)]


def _is_waiting(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # A zombie that another test has left has no command line.
        return "holdfast.job.standby" in process.cmdline()
    return False


def test_it_becomes_the_worker_that_it_is_called_to_be(desk: Desk, standby: Standby) -> None:
    """Torch is there before the script asks; arguments, variables and an empty input are the worker's own."""
    workers = _dead(desk, TELLS, "--x", "1")
    plan = workers.all[0].plan
    example = msgspec.structs.replace(plan, env={**plan.env, "OLD": "yes"})
    standby.look(example)
    (waiting,) = _waiting()
    workers.all[0].plan = msgspec.structs.replace(plan, env={**plan.env, "RANK": "10"})
    worker = workers.replace(10, standby.take)
    assert worker.pid == waiting.pid
    assert worker.plan.env[NEWCOMER_ENV] == "1"
    assert desk.end(workers) == []
    assert (desk.folder / "rank_10.log").read_text() == "True ['--x', '1'] 10 None \n"


def test_its_last_words_are_heard(desk: Desk, standby: Standby) -> None:
    """What a script raises is told as by any other worker, without a line of ours in it."""
    workers = _dead(desk, "raise ValueError('broken')\n")
    standby.look(workers.all[0].plan)
    workers.replace(10, standby.take)
    (death,) = desk.end(workers)
    assert (death.exit_code, death.error) == (1, "ValueError: broken")
    assert death.traceback is not None
    assert "standby" not in death.traceback


def test_worker_is_started_anew_where_nobody_waits(desk: Desk, standby: Standby) -> None:
    """One that has died in waiting is no help, and no harm."""
    workers = _dead(desk, TELLS)
    standby.look(workers.all[0].plan)
    (waiting,) = _waiting()
    os.kill(waiting.pid, signal.SIGKILL)
    wait_until(lambda: waiting.status() == psutil.STATUS_ZOMBIE, "its death")
    assert workers.replace(10, standby.take).pid != waiting.pid
    assert desk.end(workers) == []
    assert (desk.folder / "rank_10.log").read_text().startswith("False")
    standby.look(workers.all[0].plan)
    assert _waiting() == []  # The next is not made ready at once.


def test_only_scripts_of_this_interpreter_can_be_waited_for(desk: Desk, standby: Standby) -> None:
    """Another program, or one that is wrapped by another, is always started anew."""
    standby.look(desk.plan(0, ["numactl", *BOOT, "train.py"]))
    standby.look(desk.plan(0, [*BOOT, "--exec", "train"]))
    assert _waiting() == []


def test_more_than_a_pipe_holds_is_not_sent(desk: Desk, standby: Standby) -> None:
    """A launcher never waits for who does not read."""
    workers = _dead(desk, TELLS)
    standby.look(workers.all[0].plan)
    plan = workers.all[0].plan
    workers.all[0].plan = msgspec.structs.replace(plan, env={**plan.env, "RANK": "1" * 70_000})
    worker = workers.replace(10, standby.take)
    assert "holdfast.job.standby" not in psutil.Process(worker.pid).cmdline()
    assert _waiting() == []


def test_nobody_is_left_when_it_is_closed(desk: Desk) -> None:
    """Nor a pipe."""
    before = psutil.Process().num_fds()
    standby = Standby(BOOT)
    standby.look(desk.plan(0, [*BOOT, "train.py"]))
    assert len(_waiting()) == 1
    standby.close()
    assert _waiting() == []
    assert psutil.Process().num_fds() == before
