"""A guard is kept running, and its deaths are told once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers import Ears, wait_until
from holdfast.guard.eventlog import EventLog
from holdfast.guard.supervisor import Supervisor
from holdfast.observe.eventlog import read_events
from holdfast.values import GuardDied, GuardStarted

pytestmark = pytest.mark.processes


class Kept:
    """A supervisor and the run directory it works for."""

    def __init__(self, folder: Path, ears: Ears) -> None:
        (folder / "rings").mkdir()
        self.log = folder / "events.jsonl"
        log = EventLog(folder, node=0, host="a", say=ears.say)
        self.supervisor = Supervisor(run_dir=folder, rings=folder / "rings", log=log, say=ears.say)

    def guards(self) -> list[int]:
        """Process ids of all guards that have started."""
        if not self.log.exists():
            return []
        events = [record.event for record in read_events(self.log).records]
        return [event.pid for event in events if isinstance(event, GuardStarted)]

    def deaths(self) -> list[GuardDied]:
        """What was noted of dead guards."""
        events = [record.event for record in read_events(self.log).records]
        return [event for event in events if isinstance(event, GuardDied)]


@pytest.fixture
def kept(tmp_path: Path, ears: Ears) -> Iterator[Kept]:
    """A supervisor whose guard is ended afterwards."""
    kept = Kept(tmp_path, ears)
    yield kept
    kept.supervisor.kill()


def test_one_guard_runs_however_often_one_looks(kept: Kept) -> None:
    """It leads a session of its own, out of reach of the terminal's signals."""
    for _ in range(5):
        kept.supervisor.look()
    pid = kept.supervisor.pid
    assert pid is not None
    wait_until(lambda: kept.guards() == [pid], "the guard")
    assert os.getsid(pid) == pid


def test_a_killed_guard_is_noted_said_once_and_replaced(kept: Kept, ears: Ears) -> None:
    """Twice; the event log has both deaths, the terminal one line."""
    dead = []
    for number in (1, 2):
        kept.supervisor.look()
        wait_until(lambda number=number: _starts(kept, number), "the guard")  # type: ignore[misc]
        pid = kept.supervisor.pid
        assert pid is not None
        dead.append(GuardDied(pid=pid, exit_code=137, signal="SIGKILL"))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda number=number: _mourns(kept, number), "the note of its death")  # type: ignore[misc]
    assert kept.deaths() == dead
    said = "the guard ended (SIGKILL); training goes on, another is started"
    assert ears.lines() == [f"holdfast: {said}"]


def _starts(kept: Kept, number: int) -> bool:
    kept.supervisor.look()
    return len(kept.guards()) == number


def _mourns(kept: Kept, number: int) -> bool:
    kept.supervisor.look()
    return len(kept.deaths()) == number


def test_a_stop_ends_the_guard_and_notes_no_death(kept: Kept, ears: Ears) -> None:
    """An end that was asked for is no death."""
    kept.supervisor.look()
    wait_until(kept.guards, "the guard")
    pid = kept.supervisor.pid
    assert pid is not None
    kept.supervisor.stop()
    assert not psutil.pid_exists(pid)
    assert (kept.deaths(), ears.lines()) == ([], [])


def test_stopping_or_killing_without_a_guard_does_nothing(kept: Kept) -> None:
    """The launcher may end before it ever looked."""
    kept.supervisor.stop()
    kept.supervisor.kill()
    assert kept.supervisor.pid is None
