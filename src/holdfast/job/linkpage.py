"""The TCP counters of a worker in one file of shared memory: one writer (the worker), any number of readers.

The file is a header of 64-bit words and a name, then rows of fixed size. A number that stands before is set
before, one that stands after is set after the content is written: a reader that finds both alike has a whole
snapshot. A worker that was stopped in the middle of a write leaves none. Nothing here imports torch.
"""

from __future__ import annotations

import heapq
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.job.sockets import Counters, SocketScanner, Traffic, delayed_acks, network_name

MAGIC = int.from_bytes(b"HFLINK1\0", "little")
ROWS = 128
"""Connections of a worker that are told; 25 KB."""
EVERY_NS = 1_000_000_000
_HEADER = struct.Struct("=11q80s")
"""magic, rank, process id, attempt, number before, number after, when, rows, left out, steps,
delayed acknowledgements; then the name of the network."""
_BEFORE, _AFTER = 4, 5
_CONTENT = 6 * 8
"""Where that begins which is written again and again."""
_FACTS = struct.Struct("=5q80s")
_ROW = struct.Struct(f"=48s48s{len(Counters._fields)}q")
SIZE_BYTES = _HEADER.size + ROWS * _ROW.size
_TRIES = 10

S = TypeVar("S")


def links_path(folder: Path, rank: int) -> Path:
    """Return where the page of a rank lies."""
    return folder / f"links_{rank}.page"


class LinkPage:
    """The writing end, in the training process; where no page can be made it writes to nobody."""

    def __init__(self, path: Path, *, rank: int, attempt: int = 0, every_ns: int = EVERY_NS) -> None:
        self.is_shared = True
        """Whether anybody can read it."""
        self.errors = 0
        """Snapshots that could not be written."""
        self._pid = os.getpid()
        try:
            self._map = _make_page(path, (MAGIC, rank, self._pid, attempt))
        except (OSError, ValueError):
            self.is_shared = False
            return
        self._words = memoryview(self._map).cast("q")
        self._network = network_name().encode()[:80]
        self._scanner = SocketScanner()
        self._every_ns = every_ns
        self._number = 0
        self._steps = 0
        self._last_ns: int | None = None

    def update(self, now_ns: int) -> None:
        """Write what the kernel counts now, if the last time is a second ago; call it once per step."""
        if not self.is_shared:
            return
        self._steps += 1
        if self._last_ns is not None and now_ns - self._last_ns < self._every_ns:
            return
        try:
            if os.getpid() != self._pid:  # A forked child has our page, but it is its parent's.
                return
            self._last_ns = now_ns
            self._write(now_ns)
        except Exception:  # Nothing may reach the user's loop.
            self.errors += 1

    def _write(self, now_ns: int) -> None:
        found = self._scanner.scan()
        # By what moved both ways: the receiving end of a link has to be told too, for the ends to be joined.
        rows = heapq.nlargest(ROWS, found, key=_moved) if len(found) > ROWS else found
        acks = delayed_acks()
        facts = _FACTS.pack(
            now_ns,
            len(rows),
            len(found) - len(rows),
            self._steps,
            -1 if acks is None else acks,
            self._network,
        )
        content = facts + b"".join(map(_pack, rows))
        self._number += 1
        self._words[_BEFORE] = self._number
        self._map[_CONTENT : _CONTENT + len(content)] = content
        self._words[_AFTER] = self._number


def _moved(traffic: Traffic) -> int:
    return (traffic.counters.bytes_acked or 0) + (traffic.counters.bytes_received or 0)


def _pack(traffic: Traffic) -> bytes:
    _, local, peer = traffic.connection
    values = (-1 if value is None else value for value in traffic.counters)
    return _ROW.pack(local.encode(), peer.encode(), *values)


def _make_page(path: Path, header: tuple[int, ...]) -> mmap.mmap:
    # A new file replaces an older attempt's by rename: readers see the old page or the new, never a mix.
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # Reserve the blocks now: writing to a hole of a full file system would end the process (SIGBUS).
        os.posix_fallocate(fd, 0, SIZE_BYTES)
        memory = mmap.mmap(fd, SIZE_BYTES)
        memory[: 8 * len(header)] = struct.pack(f"={len(header)}q", *header)
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return memory


class LinkPageReader(Generic[S]):
    """The reading end, in a guard; ``shape`` is the value that a snapshot is returned as.

    It has the fields rank, pid, attempt, host, at_s, left_out, steps, delayed_acks and sockets, whose
    elements have local, peer and those of ``Counters``. (This room does not know who reasons about them.)
    """

    def __init__(self, path: Path, shape: type[S]) -> None:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_size != SIZE_BYTES:
                raise ValueError(f"{path} is {found.st_size} bytes long, expected {SIZE_BYTES}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.inode = found.st_ino
        self._shape = shape
        self._words = memoryview(self._map)[: 8 * (_AFTER + 1)].cast("q")
        magic, self.rank, self.pid, self.attempt = self._words[:_BEFORE]
        if magic != MAGIC or self.rank < 0 or self.pid < 1:
            self.close()
            raise ValueError(f"{path} is not a page of links of this version")

    def read(self) -> S | None:
        """Return the last snapshot; None if there is none yet, or none that is whole."""
        for _ in range(_TRIES):
            number = self._words[_AFTER]
            content = self._map[_CONTENT:]
            if number == self._words[_BEFORE]:
                return self._decode(content) if number else None
        return None

    def _decode(self, content: bytes) -> S:
        at_ns, count, left_out, steps, acks, network = _FACTS.unpack_from(content)
        if not 0 <= count <= ROWS:
            raise ValueError(f"the page of links of rank {self.rank} tells of {count} rows")
        body = memoryview(content)[_FACTS.size : _FACTS.size + count * _ROW.size]
        values = {
            "rank": self.rank,
            "pid": self.pid,
            "attempt": self.attempt,
            "host": _text(network),
            "at_s": at_ns / 1e9,
            "left_out": left_out,
            "steps": steps,
            "delayed_acks": None if acks < 0 else acks,
            "sockets": [_as_socket(row) for row in _ROW.iter_unpack(body)],
        }
        return msgspec.convert(values, self._shape)

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._map.close()


def _as_socket(row: tuple[Any, ...]) -> dict[str, str | int | None]:
    local, peer, *values = row
    counters = (None if value < 0 else value for value in values)
    return {
        "local": _text(local),
        "peer": _text(peer),
        **dict(zip(Counters._fields, counters, strict=True)),
    }


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode()
