"""The event log: whole lines from several writers, and no harm from those that die."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import EVENTS, STAMP, Ears, wait_until
from holdfast.guard.eventlog import EventLog, append_line, encode, log_name
from holdfast.observe.eventlog import read_events
from holdfast.values import AnyEvent, GuardStarted, Record, RunStarted

WRITER = """
import sys
from pathlib import Path
from holdfast.guard.eventlog import EventLog
from holdfast.guard.say import Say
from holdfast.values import GuardStarted, RunEnded
log = EventLog(Path(sys.argv[1]), node=0, host="a", say=Say())
number = 0
while number < int(sys.argv[2]):
    number += 1
    log.append(RunEnded(exit_code=number, reason="x" * 3000))
assert log.failures == 0
"""


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_comes_back_from_its_line(tmp_path: Path, event: AnyEvent) -> None:
    """One line, and the reader returns stamp and event as they were."""
    line = encode(STAMP, event)
    assert line.count(b"\n") == 1
    append_line(tmp_path / "events.jsonl", line)
    content = read_events(tmp_path / "events.jsonl")
    assert (content.records, content.cut, content.broken) == ([Record(stamp=STAMP, event=event)], 0, [])


def test_the_log_stamps_what_it_writes(tmp_path: Path, ears: Ears) -> None:
    """Node, host and attempt are the log's; every event has an id of its own."""
    log = EventLog(tmp_path, node=2, host="b", say=ears.say)
    log.append(GuardStarted(pid=1))
    log.attempt = 3
    log.append(GuardStarted(pid=2))
    stamps = [record.stamp for record in read_events(tmp_path / "events.node2.jsonl").records]
    assert [(s.schema, s.host, s.node, s.attempt) for s in stamps] == [(1, "b", 2, 0), (1, "b", 2, 3)]
    assert len({stamp.event_id for stamp in stamps}) == 2
    assert all(stamp.at.endswith("+00:00") for stamp in stamps)


def test_node_0_has_the_plain_name() -> None:
    """The others carry their number."""
    assert [log_name(node) for node in (0, 1, 12)] == [
        "events.jsonl",
        "events.node1.jsonl",
        "events.node12.jsonl",
    ]


def test_a_line_after_a_cut_one_is_whole(tmp_path: Path) -> None:
    """A writer that died in mid-line costs that line only."""
    file = tmp_path / "events.jsonl"
    append_line(file, encode(STAMP, EVENTS[0]))
    with file.open("ab") as log:
        log.write(encode(STAMP, EVENTS[1])[:40])
    append_line(file, encode(STAMP, EVENTS[2]))
    content = read_events(file)
    assert [record.event for record in content.records] == [EVENTS[0], EVENTS[2]]
    assert (len(content.broken), content.cut) == (1, 0)


def test_a_folder_that_is_not_there_is_said_once_and_counted(tmp_path: Path, ears: Ears) -> None:
    """Training goes on without its log."""
    log = EventLog(tmp_path / "gone", node=0, host="a", say=ears.say)
    for _ in range(3):
        log.append(GuardStarted(pid=1))
    path = tmp_path / "gone" / "events.jsonl"
    assert log.failures == 3
    assert ears.lines() == [f"holdfast: cannot write {path}: No such file or directory; training goes on"]


def test_a_full_disk_is_said_once_counted_and_leaves_a_readable_log(small_disk: Path, ears: Ears) -> None:
    """What fits is whole; the rest is counted; room made later is used."""
    log = EventLog(small_disk, node=0, host="a", say=ears.say)
    for number in range(40):
        log.append(RunStarted(run_id="x" * 500, argv=[], pid=number))
    assert log.failures > 0
    assert len(ears.lines()) == 1
    assert "No space left" in ears.lines()[0]
    content = read_events(small_disk / "events.jsonl")
    assert len(content.records) == 40 - log.failures
    (small_disk / "events.jsonl").rename(small_disk / "old.jsonl")
    (small_disk / "old.jsonl").unlink()
    log.append(GuardStarted(pid=1))
    assert [r.event for r in read_events(small_disk / "events.jsonl").records] == [GuardStarted(pid=1)]


def test_an_argument_that_is_no_unicode_does_not_stop_the_launcher(tmp_path: Path, ears: Ears) -> None:
    """``holdfast run train.py $'\\xff'`` is legal, and its event is written or counted."""
    log = EventLog(tmp_path, node=0, host="a", say=ears.say)
    log.append(RunStarted(run_id="x", argv=["train.py", "\udcff"], pid=1))
    records = read_events(tmp_path / "events.jsonl").records
    assert len(records) + log.failures == 1


@pytest.mark.processes
def test_a_lock_held_by_a_stopped_process_is_not_waited_for(tmp_path: Path) -> None:
    """After a moment the line goes out without the lock."""
    file = tmp_path / "events.jsonl"
    with file.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        holder = subprocess.Popen(["sleep", "60"], pass_fds=[other.fileno()])
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        append_line(file, encode(STAMP, EVENTS[0]))
        assert [record.event for record in read_events(file).records] == [EVENTS[0]]
        with file.open("ab") as probe, pytest.raises(BlockingIOError):
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.processes
def test_writers_that_are_killed_leave_the_others_lines_whole(tmp_path: Path) -> None:
    """Two write all the time while others are killed in the middle; no line of the two is lost or broken."""
    file = tmp_path / "events.jsonl"
    steady = [_writer(tmp_path, 200) for _ in range(2)]
    for _ in range(6):
        victim = _writer(tmp_path, 10**9)
        mark = f"-{victim.pid}-".encode()
        wait_until(lambda mark=mark: file.exists() and mark in file.read_bytes(), "the victim's first line")  # type: ignore[misc]
        victim.kill()
        victim.wait()
    assert [writer.wait() for writer in steady] == [0, 0]
    append_line(file, encode(STAMP, EVENTS[0]))
    content = read_events(file)
    for writer in steady:
        mine = [r for r in content.records if r.stamp.event_id.startswith(f"0-{writer.pid}-")]
        assert [record.event.exit_code for record in mine] == list(range(1, 201))  # type: ignore[union-attr]
    assert len({record.stamp.event_id for record in content.records}) == len(content.records)
    assert content.cut == 0
    assert len(content.broken) <= 6


def _writer(folder: Path, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(count)])
