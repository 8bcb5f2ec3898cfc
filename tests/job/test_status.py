"""The status page: what is read was said, whole, by the process that the page names."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import wait_until
from holdfast.job.status import (
    HEADER_WORDS,
    MAGIC,
    SIZE_BYTES,
    SLOT_WORDS,
    Phase,
    Status,
    StatusReader,
    StatusWriter,
    page_path,
    publish_schedule,
    schedule_path,
    started_ticks,
)

WRITER = """
import sys
from pathlib import Path
from holdfast.job.status import StatusWriter
page = StatusWriter(Path(sys.argv[1]), rank=0, pp=1, dp=1)
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    page.enter(number % 8, generation=number, step=number, op=number)
"""


@pytest.fixture
def writer(tmp_path: Path) -> StatusWriter:
    """The page of rank 5."""
    return StatusWriter(page_path(tmp_path, 5), rank=5, pp=4, dp=3)


def test_a_new_page_says_who_writes_it_and_that_it_is_outside(tmp_path: Path, writer: StatusWriter) -> None:
    """Nobody is judged by a page on which nothing was said yet."""
    reader = StatusReader(page_path(tmp_path, 5))
    status = reader.read()
    assert status == Status(
        rank=5,
        pid=os.getpid(),
        generation=-1,
        step=-1,
        op=-1,
        phase=Phase.OUTSIDE,
        since_ns=status.since_ns,
        held=5,
    )
    assert (reader.pp, reader.dp, reader.started_ticks) == (4, 3, started_ticks(os.getpid()))
    assert (writer.is_shared, writer.errors) == (True, 0)


@given(st.lists(st.tuples(st.sampled_from(Phase), *[st.integers(-1, 2**40)] * 3), min_size=1))
def test_the_last_word_is_what_is_read(
    tmp_path_factory: Any, words: list[tuple[Phase, int, int, int]]
) -> None:
    """Whatever was said before, and at a time between before and after."""
    path = page_path(tmp_path_factory.mktemp("page"), 0)
    writer = StatusWriter(path, rank=0, pp=1, dp=1)
    reader = StatusReader(path)
    for phase, generation, step, op in words:
        before_ns = time.monotonic_ns()
        writer.enter(phase, generation=generation, step=step, op=op)
        status = reader.read()
        assert (status.phase, status.generation, status.step, status.op) == (phase, generation, step, op)
        assert before_ns <= status.since_ns <= time.monotonic_ns()
    reader.close()


def test_a_writer_stopped_in_mid_word_leaves_its_last_one(tmp_path: Path, writer: StatusWriter) -> None:
    """A word that was begun and not finished is not seen."""
    writer.enter(Phase.COMPUTE, generation=1, step=2, op=3)
    with page_path(tmp_path, 5).open("r+b") as file:
        file.seek(8 * (HEADER_WORDS + 2 * SLOT_WORDS))  # Where the second word goes.
        file.write(struct.pack("2q", 77, 77))
    assert StatusReader(page_path(tmp_path, 5)).read().place == (1, 2, 3, Phase.COMPUTE)


@pytest.mark.parametrize("wrong", ["x", None, 2**80])
def test_what_cannot_be_written_is_counted_and_not_seen(
    tmp_path: Path, writer: StatusWriter, wrong: Any
) -> None:
    """Nothing is raised into the training loop, and the words before and after are whole."""
    writer.enter(Phase.COMPUTE, generation=1, step=2, op=3)
    writer.enter(Phase.REDUCE, generation=9, step=wrong, op=9)
    reader = StatusReader(page_path(tmp_path, 5))
    assert (reader.read().place, writer.errors) == ((1, 2, 3, Phase.COMPUTE), 1)
    writer.enter(Phase.SETTLE, generation=1, step=2, op=4)
    assert reader.read().place == (1, 2, 4, Phase.SETTLE)


def test_a_page_that_cannot_be_made_is_given_up_quietly(tmp_path: Path) -> None:
    """The worker goes on, unseen."""
    writer = StatusWriter(page_path(tmp_path / "gone", 0), rank=0, pp=1, dp=1)
    writer.enter(Phase.COMPUTE, generation=0, step=0, op=0)
    assert (writer.is_shared, writer.errors, list(tmp_path.iterdir())) == (False, 0, [])


def test_a_full_file_system_is_given_up_quietly_and_keeps_no_piece(small_disk: Path) -> None:
    """The writer learns of it at the start, not by SIGBUS in the middle of training."""
    (small_disk / "full").write_bytes(b"x" * 8192)
    writer = StatusWriter(page_path(small_disk, 0), rank=0, pp=1, dp=1)
    assert (writer.is_shared, [path.name for path in small_disk.iterdir()]) == (False, ["full"])


def test_a_new_page_replaces_the_old_one_whole(tmp_path: Path, writer: StatusWriter) -> None:
    """The old reader keeps what it had, a new one sees the new worker; no other file is left."""
    writer.enter(Phase.SAVE, generation=3, step=3, op=-1)
    old = StatusReader(page_path(tmp_path, 5))
    StatusWriter(page_path(tmp_path, 5), rank=5, pp=4, dp=3)
    new = StatusReader(page_path(tmp_path, 5))
    assert (old.read().phase, new.read().phase, old.inode != new.inode) == (Phase.SAVE, Phase.OUTSIDE, True)
    assert list(tmp_path.iterdir()) == [page_path(tmp_path, 5)]


def test_a_page_is_private(tmp_path: Path, writer: StatusWriter) -> None:
    """Nobody else may read or write it."""
    assert page_path(tmp_path, 5).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * SIZE_BYTES,
        pytest.param(struct.pack("8q", MAGIC, 0, 1, 1, 1, 1, 0, 0), id="cut before the slots"),
        pytest.param(struct.pack("8q", MAGIC, 0, 0, 1, 1, 1, 0, 0).ljust(SIZE_BYTES, b"\0"), id="no process"),
        pytest.param(struct.pack("8q", MAGIC, 0, 1, 1, 0, 1, 0, 0).ljust(SIZE_BYTES, b"\0"), id="no stages"),
        pytest.param(
            struct.pack("12q", MAGIC, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 99).ljust(SIZE_BYTES, b"\0"),
            id="no phase of this version",
        ),
    ],
)
def test_a_file_that_is_no_page_of_this_version_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, cut, foreign and newer files end in a ValueError."""
    path = page_path(tmp_path, 0)
    path.write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 - one kind of error is the whole point.
        StatusReader(path).read()


@pytest.mark.processes
def test_a_reader_beside_a_fast_writer_sees_only_whole_words_in_order(tmp_path: Path) -> None:
    """All parts of a status were said at once, and none is older than the one before."""
    path = page_path(tmp_path, 0)
    command = [sys.executable, "-c", WRITER, str(path), "300000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reader = StatusReader(path)
        seen = []
        while process.poll() is None:
            status = reader.read()
            if status.step >= 0:
                seen.append(status)
    assert [s for s in seen if not (s.step == s.generation == s.op and s.phase == s.step % 8)] == []
    assert [status.step for status in seen] == sorted(status.step for status in seen)
    assert reader.read().step == 299_999


@pytest.mark.processes
def test_a_stopped_writer_can_still_be_read(tmp_path: Path) -> None:
    """Stopped anywhere, again and again, also in the middle of a word."""
    path = page_path(tmp_path, 0)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1000000000"]) as process:
        try:
            wait_until(path.exists, "the page")
            reader = StatusReader(path)
            for _ in range(100):
                process.send_signal(signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                assert reader.read() == reader.read()
                process.send_signal(signal.SIGCONT)
        finally:
            process.kill()


def test_a_schedule_is_published_once_and_replaces_older_ones(tmp_path: Path) -> None:
    """Twice is harmless, a late one of an older generation leaves the newer, nothing else is left over."""
    publish_schedule(tmp_path, 3, "old")
    publish_schedule(tmp_path, 10, "new")
    publish_schedule(tmp_path, 10, "new")
    (tmp_path / "schedule_of_mine.txt").write_text("a stranger's")
    publish_schedule(tmp_path, 9, "late")
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == {
        schedule_path(tmp_path, 9).name: "late",
        schedule_path(tmp_path, 10).name: "new",
        "schedule_of_mine.txt": "a stranger's",
    }


def test_a_schedule_that_cannot_be_published_is_given_up_quietly(tmp_path: Path) -> None:
    """Training needs no schedule beside the pages."""
    publish_schedule(tmp_path / "gone", 0, "text")
    assert list(tmp_path.iterdir()) == []
