"""The ring: nothing is lost that is not counted, nothing is seen that was not written."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.job.ring import MAGIC, SLOT_WORDS, RingReader, RingWriter, ring_path
from holdfast.telemetry import Step

WRITER = """
import sys
from pathlib import Path
from holdfast.job.ring import RingWriter
ring = RingWriter(Path(sys.argv[1]), rank=0, capacity=int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    ring.append(number, number * 10**9, number * 10**9)
"""


@given(st.integers(1, 9), st.lists(st.integers(0, 20), max_size=12))
def test_any_sequence_of_appends_and_reads_loses_nothing_uncounted(capacity: int, bursts: list[int]) -> None:
    """Each read returns the newest records up to the capacity, in order, and counts the rest as lost."""
    with tempfile.TemporaryDirectory() as folder:
        path = ring_path(Path(folder), 0)
        writer = RingWriter(path, rank=0, capacity=capacity)
        reader = RingReader(path)
        written, lost = 0, 0
        for burst in bursts:
            for number in range(written, written + burst):
                writer.append(number, number * 10**9, number)
            written += burst
            kept = min(burst, capacity)
            lost += burst - kept
            assert [step.step for step in reader.read()] == list(range(written - kept, written))
            assert reader.lost == lost
        reader.close()


def test_a_record_comes_back_whole(tmp_path: Path) -> None:
    """Rank and attempt are those of the ring, times become seconds."""
    path = ring_path(tmp_path, 3)
    writer = RingWriter(path, rank=3, attempt=2, capacity=4)
    writer.append(17, 5_500_000_000, 250_000_000)
    reader = RingReader(path)
    assert reader.read() == [Step(rank=3, step=17, ended_s=5.5, duration_s=0.25, attempt=2)]
    assert (reader.rank, reader.pid, reader.attempt, reader.lost) == (3, os.getpid(), 2, 0)
    assert reader.read() == []


def test_every_reader_has_its_own_place(tmp_path: Path) -> None:
    """A second reader sees all that is still there, whatever the first one read."""
    path = ring_path(tmp_path, 0)
    writer = RingWriter(path, rank=0, capacity=4)
    first = RingReader(path)
    for number in range(3):
        writer.append(number, 0, 0)
    assert len(first.read()) == 3
    assert [step.step for step in RingReader(path).read()] == [0, 1, 2]


def test_a_late_reader_counts_what_it_missed(tmp_path: Path) -> None:
    """Opened after the ring went round, it has lost all but the capacity."""
    writer = RingWriter(ring_path(tmp_path, 0), rank=0, capacity=4)
    for number in range(10):
        writer.append(number, 0, 0)
    reader = RingReader(ring_path(tmp_path, 0))
    assert ([step.step for step in reader.read()], reader.lost) == ([6, 7, 8, 9], 6)


def test_a_new_ring_replaces_the_old_one_whole(tmp_path: Path) -> None:
    """The old reader keeps what it had; a new one sees only the new attempt; no other file is left."""
    path = ring_path(tmp_path, 0)
    old = RingWriter(path, rank=0, attempt=0, capacity=4)
    old.append(1, 0, 0)
    reader = RingReader(path)
    RingWriter(path, rank=0, attempt=1, capacity=8)
    assert [step.attempt for step in reader.read()] == [0]
    again = RingReader(path)
    assert (again.attempt, again.read(), again.inode != reader.inode) == (1, [], True)
    assert list(tmp_path.iterdir()) == [path]


def test_a_ring_is_private(tmp_path: Path) -> None:
    """Nobody else may read or write it."""
    RingWriter(ring_path(tmp_path, 0), rank=0)
    assert ring_path(tmp_path, 0).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<8Q", MAGIC + 1, 4, SLOT_WORDS, 0, 1, 0, 0, 0).ljust(8 * (16 + 4 * SLOT_WORDS), b"\0"),
        struct.pack("<8Q", MAGIC, 4, 6, 0, 1, 0, 0, 0).ljust(8 * (16 + 4 * SLOT_WORDS), b"\0"),
        b"x" * 4096,
        pytest.param(struct.pack("<Q", MAGIC), id="cut in the header"),
        pytest.param(struct.pack("<8Q", MAGIC, 4, SLOT_WORDS, 0, 1, 0, 4, 0), id="cut before the slots"),
    ],
)
def test_a_file_that_is_no_ring_of_this_version_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, cut, foreign and newer files end in a ValueError, which ``Rings`` passes over."""
    path = ring_path(tmp_path, 0)
    path.write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 - one kind of error is the whole point.
        RingReader(path).read()


def test_a_ring_that_was_never_made_is_an_os_error(tmp_path: Path) -> None:
    """So that ``Rings`` can pass over a file that has just gone."""
    with pytest.raises(FileNotFoundError):
        RingReader(ring_path(tmp_path, 0))


def test_a_ring_in_a_folder_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    """``attach`` gives up quietly on that."""
    with pytest.raises(FileNotFoundError):
        RingWriter(ring_path(tmp_path / "gone", 0), rank=0)


def test_a_full_file_system_refuses_the_ring_and_keeps_no_piece(small_disk: Path) -> None:
    """The writer learns of it at the start, not by SIGBUS in the middle of training."""
    with pytest.raises(OSError, match="No space left"):
        RingWriter(ring_path(small_disk, 0), rank=0, capacity=4096)
    assert list(small_disk.iterdir()) == []


def test_a_number_that_does_not_fit_leaves_the_ring_as_it_was(tmp_path: Path) -> None:
    """The hook counts the error; the records before and after are whole."""
    writer = RingWriter(ring_path(tmp_path, 0), rank=0, capacity=4)
    writer.append(0, 0, 0)
    with pytest.raises(struct.error):
        writer.append(1, 0, -1)
    writer.append(2, 0, 0)
    assert [step.step for step in RingReader(ring_path(tmp_path, 0)).read()] == [0, 2]


@pytest.mark.processes
def test_a_reader_beside_a_fast_writer_sees_only_whole_records_in_order(tmp_path: Path) -> None:
    """While another process laps it, each record is whole, newer than the one before, or counted as lost."""
    for capacity in (64, 4, 4096, 1) * 2:
        steps, lost = _race(ring_path(tmp_path, capacity), capacity, 200_000)
        numbers = [step.step for step in steps]
        assert [step for step in steps if not step.step == step.ended_s == step.duration_s] == []
        assert numbers == sorted(set(numbers))
        assert len(steps) + lost == 200_000


def _race(path: Path, capacity: int, count: int) -> tuple[list[Step], int]:
    """Return what a reader saw beside a writer, and how much it lost."""
    command = [sys.executable, "-c", WRITER, str(path), str(capacity), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        reader = RingReader(path)
        writer.stdin.write(b"go\n")
        writer.stdin.close()
        steps: list[Step] = []
        is_over = False
        while not is_over:
            is_over = writer.poll() is not None
            steps += reader.read()
    return steps, reader.lost
