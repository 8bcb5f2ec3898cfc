"""A bounded ring of step records in shared memory: one writer (a rank), any number of readers.

The file is an array of 64-bit words: a header of sixteen, then ``capacity`` slots. A word is stored and
loaded whole, and a slot's sequence number is cleared before and set after its content, so that a reader
that sees the same number before and after has a whole record. A reader that falls behind by more than the
capacity loses the oldest records and counts them. Three words of the header say what the writer is in the
midst of, for whoever looks after it has gone silent. Nothing here imports torch, and a writer never blocks:
no lock, no system call.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from holdfast.telemetry import ChannelUse, InCall, Step

MAGIC = int.from_bytes(b"HFRING4\0", "little")
HEADER_WORDS = 16
"""magic, capacity, words per slot, rank, process id, attempt, head, calls, since, channel; others free."""
HEAD, CALLS, SINCE, CHANNEL = 6, 7, 8, 9
CHANNELS_PER_STEP = 8
"""How many channels of a step are told apart; the rest are summed in the last place."""
_PARTS = 11
"""Words of a record between its duration and its channels: see ``append``."""
_CHANNEL_WORDS = 4
_FIRST_CHANNEL = 4 + _PARTS
SLOT_WORDS = _FIRST_CHANNEL + _CHANNEL_WORDS * CHANNELS_PER_STEP
"""Sequence number from 1, step, end and duration in nanoseconds, parts, channels."""
DEFAULT_CAPACITY = 1024
"""Slots per rank: 376 KB, more than a minute and a half at 10 steps a second; guards read every second."""
NO_PARTS = (0,) * _PARTS
_SLOT = struct.Struct(f"={SLOT_WORDS - 1}Q")
_NO_CHANNELS = (0,) * (_CHANNEL_WORDS * CHANNELS_PER_STEP)


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
            self._bytes = mmap.mmap(fd, size)
        except OSError:
            fresh.unlink()
            raise
        finally:
            os.close(fd)
        self.words = memoryview(self._bytes).cast("Q")
        """Whoever times calls writes what is going on into the header directly: it has to be cheap."""
        for index, word in enumerate((MAGIC, capacity, SLOT_WORDS, rank, os.getpid(), attempt)):
            self.words[index] = word
        fresh.rename(path)
        self._capacity = capacity
        self._head = 0

    def append(
        self,
        step: int,
        ended_ns: int,
        duration_ns: int,
        parts: Sequence[int] = NO_PARTS,
        channels: Sequence[int] = _NO_CHANNELS,
    ) -> None:
        """Store one finished step, over the oldest one when the ring is full.

        ``parts``: nanoseconds waited, in the data loader, in garbage collections, saving, of CPU, and in
        operations; bytes moved, calls made, work done; flags; the number of the cycle that the step is one
        of. ``channels``: number from 1, nanoseconds, bytes and calls of each, filled up with zeros.
        """
        words, head = self.words, self._head
        slot = HEADER_WORDS + head % self._capacity * SLOT_WORDS
        words[slot] = 0
        _SLOT.pack_into(self._bytes, 8 * (slot + 1), step, ended_ns, duration_ns, *parts, *channels)
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
            words = self._words[slot : slot + SLOT_WORDS].tolist()
            if not words[0] == self._words[slot] == number + 1:  # The writer lapped us while we were reading.
                self.lost += 1
                continue
            steps.append(_step(words, rank=self.rank, attempt=self.attempt))
        self._next = head
        return steps

    def in_call(self) -> InCall:
        """Return what the writer is in the midst of."""
        calls, since_ns, channel = self._words[CALLS : CHANNEL + 1]
        return InCall(
            rank=self.rank,
            calls=calls,
            steps=self._words[HEAD],
            since_s=since_ns / 1e9 if since_ns else None,
            channel=channel,
        )

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._map.close()


def _step(words: Sequence[int], *, rank: int, attempt: int) -> Step:
    _, step, ended_ns, duration_ns, *parts = words[:_FIRST_CHANNEL]
    wait, data, gc, save, cpu, operations, moved, calls, work, flags, cycle = parts
    return Step(
        rank=rank,
        step=step,
        ended_s=ended_ns / 1e9,
        duration_s=duration_ns / 1e9,
        attempt=attempt,
        wait_s=wait / 1e9,
        data_s=data / 1e9,
        gc_s=gc / 1e9,
        save_s=save / 1e9,
        cpu_s=cpu / 1e9,
        operations_s=operations / 1e9,
        moved_bytes=moved,
        calls=calls,
        work=work,
        flags=flags,
        cycle=cycle,
        channels=tuple(
            ChannelUse(
                channel=words[at], wait_s=words[at + 1] / 1e9, moved_bytes=words[at + 2], calls=words[at + 3]
            )
            for at in range(_FIRST_CHANNEL, SLOT_WORDS, _CHANNEL_WORDS)
            if words[at]
        ),
    )
