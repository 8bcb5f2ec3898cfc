"""A guard is started with what it has to know of the others, and again when that changes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batches import Caller, make_hello
from helpers import Ears, wait_until
from holdfast.guard.eventlog import EventLog
from holdfast.guard.frames import Heard
from holdfast.guard.reporting import Meeting, Reporting, accept
from holdfast.guard.supervisor import Supervisor
from holdfast.observe.eventlog import read_events
from holdfast.values import GuardDied

pytestmark = pytest.mark.processes


@pytest.fixture
def supervisor(tmp_path: Path, ears: Ears) -> Iterator[Supervisor]:
    """A supervisor whose guard is ended afterwards."""
    (tmp_path / "rings").mkdir()
    log = EventLog(tmp_path, node=0, host="a", say=ears.say)
    supervisor = Supervisor(run_dir=tmp_path, rings=tmp_path / "rings", log=log, say=ears.say)
    yield supervisor
    supervisor.kill()


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    """Node 0's part, closed afterwards."""
    meeting = Meeting()
    yield meeting
    meeting.close()


def _says_hello(port: int, token: str) -> bool:
    caller = Caller(port)
    caller.send(make_hello(token=token))
    is_welcome = caller.hear() == Heard()
    caller.close()
    return is_welcome


def test_a_guard_that_is_started_again_listens_where_the_last_one_did(
    supervisor: Supervisor, meeting: Meeting
) -> None:
    """The launcher keeps the socket, and a node that calls meanwhile waits; the token is still needed."""
    word = accept(meeting.invite("127.0.0.1", attempt=0), attempt=0)
    assert word is not None
    port = int(word.ship_to.rpartition(":")[2])
    supervisor.report(meeting.host())
    supervisor.look()
    assert _says_hello(port, word.token)
    first = supervisor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    def is_replaced() -> bool:
        supervisor.look()
        return supervisor.pid not in (first, None)

    wait_until(is_replaced, "another guard")
    assert _says_hello(port, word.token)
    assert not _says_hello(port, "guessed")


def test_a_guard_is_replaced_when_it_has_to_report_elsewhere(supervisor: Supervisor, tmp_path: Path) -> None:
    """That is no death; what it is told again it keeps doing."""
    elsewhere = Reporting(token="t", ship_to="127.0.0.1:1")
    supervisor.look()
    first = supervisor.pid
    assert first is not None
    supervisor.report(elsewhere)
    assert not psutil.pid_exists(first)
    supervisor.look()
    second = supervisor.pid
    assert second is not None
    supervisor.report(elsewhere)
    supervisor.look()
    assert supervisor.pid == second
    wait_until(lambda: "--ship-to" in psutil.Process(second).cmdline(), "the guard's command")
    wait_until((tmp_path / "events.jsonl").exists, "the guard")
    events = [record.event for record in read_events(tmp_path / "events.jsonl").records]
    assert not any(isinstance(event, GuardDied) for event in events)
