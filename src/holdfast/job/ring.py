"""A bounded ring of step records in shared memory: one writer (a rank), any number of readers.

The file is an array of 64-bit words: a header of eight, then ``capacity`` slots of four. A word is stored
and loaded whole, and a slot's sequence number is cleared before and set after its content, so that a reader
that sees the same number before and after has a whole record. A reader that falls behind by more than the
capacity loses the oldest records and counts them. Nothing here imports torch, and a writer never blocks: no
lock, no system call.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from holdfast.values import Step

MAGIC = int.from_bytes(b"HFRING2\0", "little")
HEADER_WORDS = 8
"""magic, capacity, words per slot, rank, process id, attempt, head, unused."""
HEAD = 6
SLOT_WORDS = 4
"""sequence number from 1, step, end and duration in nanoseconds."""
DEFAULT_CAPACITY = 4096
"""Slots per rank: 128 KB, about 7 minutes at 10 steps a second."""


def ring_path(folder: Path, rank: int) -> Path:
    """Return where the ring of a rank lies."""
    return folder / f"rank_{rank}.ring"


class RingWriter:
    """The writing end, in the training process."""

    def __init__(self, path: Path, *, rank: int, attempt: int = 0, capacity: int = DEFAULT_CAPACITY) -> None:
        size = 8 * (HEADER_WORDS + capacity * SLOT_WORDS)
        # A new file replaces an older attempt's by rename: readers see the old ring or the new, never a mix.
        fresh = path.with_suffix(f".{os.getpid()}.new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Reserve the blocks now: writing to a hole of a full file system would end the process (SIGBUS).
            os.posix_fallocate(fd, 0, size)
            self._words = memoryview(mmap.mmap(fd, size)).cast("Q")
        except OSError:
            fresh.unlink()
            raise
        finally:
            os.close(fd)
        for index, word in enumerate((MAGIC, capacity, SLOT_WORDS, rank, os.getpid(), attempt)):
            self._words[index] = word
        fresh.rename(path)
        self._capacity = capacity
        self._head = 0

    def append(self, step: int, ended_ns: int, duration_ns: int) -> None:
        """Store one finished step, over the oldest one when the ring is full."""
        words, head = self._words, self._head
        slot = HEADER_WORDS + head % self._capacity * SLOT_WORDS
        words[slot] = 0
        words[slot + 1] = step
        words[slot + 2] = ended_ns
        words[slot + 3] = duration_ns
        words[slot] = words[HEAD] = self._head = head + 1


class RingReader:
    """The reading end, in a guard or a lab; remembers how far it has read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size < 8 * HEADER_WORDS or status.st_size % 8:
                raise ValueError(f"{path} is {status.st_size} bytes long, expected a ring")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.inode = status.st_ino
        self._words = memoryview(self._map).cast("Q")
        magic, self._capacity, slot_words, self.rank, self.pid, self.attempt = self._words[:HEAD]
        expected = HEADER_WORDS + self._capacity * SLOT_WORDS
        if magic != MAGIC or slot_words != SLOT_WORDS or len(self._words) != expected:
            self.close()
            raise ValueError(f"{path} is not a ring of this version")
        self._next = 0
        self.lost = 0
        """Records overwritten before they were read."""

    def read(self) -> list[Step]:
        """Return the steps finished since the last call, oldest first."""
        head = self._words[HEAD]
        first = max(self._next, head - self._capacity)
        self.lost += first - self._next
        steps = []
        for number in range(first, head):
            slot = HEADER_WORDS + number % self._capacity * SLOT_WORDS
            before, step, ended_ns, duration_ns = self._words[slot : slot + SLOT_WORDS]
            if not before == self._words[slot] == number + 1:  # The writer lapped us while we were reading.
                self.lost += 1
                continue
            steps.append(
                Step(
                    rank=self.rank,
                    step=step,
                    ended_s=ended_ns / 1e9,
                    duration_s=duration_ns / 1e9,
                    attempt=self.attempt,
                )
            )
        self._next = head
        return steps

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._map.close()
