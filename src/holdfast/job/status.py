"""Where a worker is, in one page of shared memory: one writer (the worker), any number of readers.

The file is an array of signed 64-bit words: a header of eight, then sixteen slots of eight that are written
in turn. A word is stored and loaded whole, and the count of writes is set after the slot that it speaks of,
so a reader that finds the count hardly changed has a whole status; also when the writer was stopped in the
middle of a write. Nothing here imports torch, and a writer never blocks: no lock, no system call.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from pathlib import Path

from holdfast.job.files import replace_file
from holdfast.telemetry import Phase, Status

__all__ = [
    "Phase",
    "Status",
    "StatusReader",
    "StatusWriter",
    "page_path",
    "publish_schedule",
    "schedule_path",
]

MAGIC = int.from_bytes(b"HFPAGE1\0", "little")
HEADER_WORDS = 8
"""magic, rank, process id, start of the process in the kernel's ticks, pp, dp, unused, count of writes."""
COUNT = 7
SLOT_WORDS = 8
"""generation, step, op, phase, since in nanoseconds, place that is held, unused."""
SLOTS = 16
SIZE_BYTES = 8 * (HEADER_WORDS + SLOTS * SLOT_WORDS)
_TRIES = 100


def page_path(folder: Path, rank: int) -> Path:
    """Return where the page of a rank lies."""
    return folder / f"status_{rank}.page"


def schedule_path(folder: Path, generation: int) -> Path:
    """Return where the schedule of a generation lies."""
    return folder / f"schedule_{generation}.txt"


class StatusWriter:
    """The writing end, in the training process; where no page can be made it writes to nobody."""

    def __init__(self, path: Path, *, rank: int, pp: int, dp: int) -> None:
        self.is_shared = True
        """Whether anybody can read it."""
        try:
            self._words = _make_page(path, (MAGIC, rank, os.getpid(), started_ticks(os.getpid()), pp, dp))
        except (OSError, ValueError):
            self.is_shared = False
            self._words = memoryview(bytearray(SIZE_BYTES)).cast("q")
        self.held = rank
        """Pipeline and stage that the worker holds, as a number."""
        self.errors = 0
        """Statuses that could not be written."""
        self._count = 0

    def enter(self, phase: int, *, generation: int, step: int, op: int) -> None:
        """Say what comes now; ``op`` is an index into the worker's order, its length after the last one."""
        try:
            words, count = self._words, self._count + 1
            slot = HEADER_WORDS + count % SLOTS * SLOT_WORDS
            words[slot] = generation
            words[slot + 1] = step
            words[slot + 2] = op
            words[slot + 3] = phase
            words[slot + 4] = time.monotonic_ns()
            words[slot + 5] = self.held
            words[COUNT] = self._count = count
        except Exception:  # Nothing may reach the user's loop.
            self.errors += 1


def _make_page(path: Path, header: tuple[int, ...]) -> memoryview[int]:
    # A new file replaces an older attempt's by rename: readers see the old page or the new, never a mix.
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # Reserve the block now: writing to a hole of a full file system would end the process (SIGBUS).
        os.posix_fallocate(fd, 0, SIZE_BYTES)
        words = memoryview(mmap.mmap(fd, SIZE_BYTES)).cast("q")
        for index, word in enumerate(header):
            words[index] = word
        # Until the first word of the worker: in the user's own code, in no generation.
        first = (-1, -1, -1, Phase.OUTSIDE, time.monotonic_ns(), header[1])
        for index, word in enumerate(first, start=HEADER_WORDS):
            words[index] = word
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return words


class StatusReader:
    """The reading end, in a guard."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_size != SIZE_BYTES:
                raise ValueError(f"{path} is {found.st_size} bytes long, expected {SIZE_BYTES}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.inode = found.st_ino
        self._words = memoryview(self._map).cast("q")
        magic, self.rank, self.pid, self.started_ticks, self.pp, self.dp = self._words[:6]
        if magic != MAGIC or self.rank < 0 or self.pid < 1 or self.pp < 1:
            self.close()
            raise ValueError(f"{path} is not a status page of this version")

    def read(self) -> Status:
        """Return where the worker is."""
        for _ in range(_TRIES):
            count = self._words[COUNT]
            slot = HEADER_WORDS + count % SLOTS * SLOT_WORDS
            generation, step, op, phase, since_ns, held = self._words[slot : slot + 6]
            # The writer begins with our slot again after it has counted all the others.
            if self._words[COUNT] - count < SLOTS - 1 and phase in _PHASES:
                return Status(
                    rank=self.rank,
                    pid=self.pid,
                    generation=generation,
                    step=step,
                    op=op,
                    phase=_PHASES[phase],
                    since_ns=since_ns,
                    held=held,
                )
        raise ValueError(f"the status page of rank {self.rank} cannot be read: phase {phase}")

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._map.close()


_PHASES = {int(phase): phase for phase in Phase}


def started_ticks(pid: int) -> int:
    """Return when a process started, by the kernel: with its number, that names it for ever."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(text.rpartition(")")[2].split()[19])


def publish_schedule(folder: Path, generation: int, text: str) -> None:
    """Lay the schedule of a generation beside the pages and remove older ones; give up quietly."""
    path = schedule_path(folder, generation)
    # Without its schedule a generation is judged by less; training needs none of it.
    with contextlib.suppress(OSError):
        replace_file(path, text.encode())
        for other in folder.glob("schedule_*.txt"):
            number = other.stem.removeprefix("schedule_")
            if number.isdecimal() and int(number) < generation:
                other.unlink(missing_ok=True)
