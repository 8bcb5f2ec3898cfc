"""Append events to ``events.jsonl``: whole lines, several writers, and a disk that may be full.

A line goes out in one write under a file lock, after a check that the line before it is complete; a writer
killed in mid-line therefore costs that line only. A log that cannot be written is said once, then counted.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.guard.say import Say
from holdfast.guard.text import encode_json
from holdfast.values import SCHEMA_VERSION, AnyEvent, Stamp

_LOCK_TRIES = 50


def log_name(node: int) -> str:
    """Return the file name of a node's event log; node 0 has the plain one."""
    return "events.jsonl" if node == 0 else f"events.node{node}.jsonl"


class EventLog:
    """One node's event log, open for appending."""

    def __init__(self, folder: Path, *, node: int, host: str, say: Say) -> None:
        self.node = node
        self.attempt = 0
        self.failures = 0
        """Events that could not be written."""
        self._host = host
        self._say = say
        self._path = folder / log_name(node)
        self._count = 0

    def append(self, event: AnyEvent) -> None:
        """Write one event; on failure say so once and carry on."""
        stamp = Stamp(
            schema=SCHEMA_VERSION,
            event_id=self._next_id(),
            at=datetime.now(UTC).isoformat(),
            host=self._host,
            node=self.node,
            attempt=self.attempt,
        )
        try:
            append_line(self._path, encode(stamp, event))
        except OSError as error:
            self.failures += 1
            self._say.cannot_write(self._path, error)

    def _next_id(self) -> str:
        self._count += 1
        return f"{self.node}-{os.getpid()}-{time.time_ns():x}-{self._count}"


def encode(stamp: Stamp, event: AnyEvent) -> bytes:
    """Return the line of the log: the stamp's fields, then the event's own."""
    line: dict[str, Any] = msgspec.to_builtins(stamp)
    fields = msgspec.to_builtins(event)
    return encode_json(line | {"name": fields.pop("name"), "type": event.type} | fields) + b"\n"


def append_line(path: Path, line: bytes) -> None:
    """Append a complete line, in a line of its own whatever was there before."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(fd)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(fd, line) != len(line):
            raise OSError(28, "No space left on device")
    finally:
        os.close(fd)


def _lock(fd: int, sleep: Callable[[float], None] = time.sleep) -> None:
    # A writer stopped while it holds the lock must not stop the others: after a tenth of a second go ahead.
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            sleep(0.002)
        except OSError:
            return  # The file system has no locks.
