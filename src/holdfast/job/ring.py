"""A bounded ring of step records in shared memory: one writer (a rank), any number of readers.

The file has a header and ``capacity`` fixed-size slots. The writer fills slot ``n % capacity`` and then
stores ``n + 1`` as the head, so that a reader sees whole records only; a reader that falls behind by
more than the capacity loses the oldest records and counts them. Nothing here imports torch, and a
writer never blocks: no lock, no system call.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from holdfast.values import Step

MAGIC = b"HFRING1\0"
HEADER = struct.Struct("<8sIIIIIIQ")  # magic, capacity, slot size, rank, pid, attempt, unused, head
HEAD = struct.Struct("<Q")
HEAD_OFFSET = HEADER.size - HEAD.size
SLOT = struct.Struct("<QQQQ")  # sequence number from 1, step, end and duration in ns
SLOTS_OFFSET = 64
DEFAULT_CAPACITY = 4096
"""Slots per rank: 128 KB, about 7 minutes at 10 steps a second."""


def ring_path(folder: Path, rank: int) -> Path:
    """Return where the ring of a rank lies."""
    return folder / f"rank_{rank}.ring"


class RingWriter:
    """The writing end, in the training process."""

    def __init__(self, path: Path, *, rank: int, attempt: int = 0, capacity: int = DEFAULT_CAPACITY) -> None:
        size = SLOTS_OFFSET + capacity * SLOT.size
        # A new file replaces an older attempt's by rename: readers see the old ring or the new, never a mix.
        fresh = path.with_suffix(f".{os.getpid()}.new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Reserve the blocks now: writing to a hole of a full file system would end the process (SIGBUS).
            os.posix_fallocate(fd, 0, size)
            self._map = mmap.mmap(fd, size)
        except OSError:
            fresh.unlink()
            raise
        finally:
            os.close(fd)
        HEADER.pack_into(self._map, 0, MAGIC, capacity, SLOT.size, rank, os.getpid(), attempt, 0, 0)
        fresh.rename(path)
        self._capacity = capacity
        self._head = 0

    def append(self, step: int, ended_ns: int, duration_ns: int) -> None:
        """Store one finished step, over the oldest one when the ring is full."""
        head = self._head
        SLOT.pack_into(
            self._map,
            SLOTS_OFFSET + head % self._capacity * SLOT.size,
            head + 1,
            step,
            ended_ns,
            duration_ns,
        )
        self._head = head + 1
        HEAD.pack_into(self._map, HEAD_OFFSET, self._head)


class RingReader:
    """The reading end, in a guard or a lab; remembers how far it has read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.inode = os.fstat(file.fileno()).st_ino
        header = HEADER.unpack_from(self._map, 0)
        magic, self._capacity, slot_size, self.rank, self.pid, self.attempt = header[:6]
        if magic != MAGIC or slot_size != SLOT.size:
            raise ValueError(f"{path} is not a ring of this version: {magic!r}, slots of {slot_size} bytes")
        self._next = 0
        self.lost = 0
        """Records overwritten before they were read."""

    def read(self) -> list[Step]:
        """Return the steps finished since the last call, oldest first."""
        head: int = HEAD.unpack_from(self._map, HEAD_OFFSET)[0]
        first = max(self._next, head - self._capacity)
        self.lost += first - self._next
        steps = []
        for number in range(first, head):
            offset = SLOTS_OFFSET + number % self._capacity * SLOT.size
            sequence, step, ended_ns, duration_ns = SLOT.unpack_from(self._map, offset)
            if sequence != number + 1:  # The writer lapped us while we were reading.
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
        self._map.close()
