"""Carry the workers' output: raw into one file per rank, as whole prefixed lines to the terminal.

A thread reads the pipes and never waits: not for a disk that is full, and not for a terminal that has
stopped (lines that do not fit into the queue are counted and told at the end). So a worker's print
cannot be blocked by anything of ours.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.guard.console import Console
from holdfast.guard.lines import Lines
from holdfast.guard.say import Say

_READ_BYTES = 64 * 1024


class Show(msgspec.Struct, frozen=True, kw_only=True):
    """What of a worker's output goes to the terminal, and to which extra file."""

    prefix: str
    stdout: bool = True
    stderr: bool = True
    stdout_filters: tuple[str, ...] = ()
    """Lines with one of these words also go to a file of their own (--duplicate-stdout-filters)."""
    stderr_filters: tuple[str, ...] = ()


class _Stream:
    """One pipe of one worker."""

    def __init__(self, fd: int, take: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self.fd = fd
        self.take = take
        self.end = end


class Pump:
    """The thread that reads all pipes of all workers of a node."""

    def __init__(self, console: Console, say: Say) -> None:
        self._console = console
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._lock = threading.Lock()
        self._open = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-pump", daemon=True)
        self._thread.start()

    def add_output(self, *, stdout: int, stderr: int, log: Path, show: Show) -> None:
        """Read a worker's two output pipes from now on."""
        file = LogFile(log, self._say)
        out = _Channel(1, show.prefix, file.shared(), self._console if show.stdout else None)
        err = _Channel(2, show.prefix, file.shared(), self._console if show.stderr else None)
        out.copy(show.stdout_filters, LogFile(log.with_name("filtered_stdout.log"), self._say).shared())
        err.copy(show.stderr_filters, LogFile(log.with_name("filtered_stderr.log"), self._say).shared())
        self._add(_Stream(stdout, out.take, out.end))
        self._add(_Stream(stderr, err.take, err.end))

    def add_exit(self, pidfd: int, seen: Callable[[float], None]) -> None:
        """Call ``seen`` with the time at which the process of the descriptor ended."""

        def take(_: bytes) -> None:
            seen(time.monotonic())

        self._add(_Stream(pidfd, take, lambda: None))

    def add_report(self, fd: int, take: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Collect a worker's last words, and say when there will be no more."""
        self._add(_Stream(fd, take, end))

    def drain(self, timeout_s: float) -> None:
        """Return when all pipes have ended, or after the time-out (a grandchild may hold one open)."""
        deadline = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """Stop the thread and show what was left of unfinished lines."""
        self._closing = True
        self._wake()
        self._thread.join(2.0)

    def _add(self, stream: _Stream) -> None:
        with self._lock:
            self._open += 1
            self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:
            return  # It has been woken often enough.

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(1.0):
                if key.data is None:
                    os.read(self._wake_read, 512)
                else:
                    self._serve(key.data)
        with self._lock:
            left = [key.data for key in self._selector.get_map().values() if key.data is not None]
        for stream in left:
            self._finish(stream)

    def _serve(self, stream: _Stream) -> None:
        try:
            data = os.read(stream.fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # A process descriptor cannot be read: that it woke us is the whole message.
            stream.take(b"")
            data = b""
        if data:
            stream.take(data)
        else:
            self._finish(stream)

    def _finish(self, stream: _Stream) -> None:
        with self._lock:
            self._selector.unregister(stream.fd)
            self._open -= 1
        stream.end()
        os.close(stream.fd)


class _Channel:
    """Where one output stream of one worker goes."""

    def __init__(self, fd: int, prefix: str, file: LogFile, console: Console | None) -> None:
        self._fd = fd
        self._prefix = prefix.encode()
        self._file = file
        self._console = console
        self._lines = Lines()
        self._words: tuple[bytes, ...] = ()
        self._extra: LogFile | None = None

    def copy(self, words: tuple[str, ...], file: LogFile) -> None:
        """Copy lines that contain one of the words to a file of their own."""
        self._words = tuple(word.encode() for word in words)
        self._extra = file

    def take(self, data: bytes) -> None:
        self._file.write(data)
        self._show(self._lines.feed(data, time.monotonic()))

    def end(self) -> None:
        self._show(self._lines.close())
        self._file.release()
        if self._extra is not None:
            self._extra.release()

    def _show(self, lines: list[bytes]) -> None:
        if lines and self._console is not None:
            self._console.put(self._fd, b"".join(self._prefix + line + b"\n" for line in lines))
        for line in lines:
            if self._extra is not None and any(word in line for word in self._words):
                self._extra.write(self._prefix + line + b"\n")


class LogFile:
    """A file that is written as long as it can be; the first failure is said once."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path = path
        self._say = say
        self._file: BinaryIO | None = None
        self._users = 0

    def shared(self) -> LogFile:
        """Return itself for one more user; when all have released it, it is closed."""
        self._users += 1
        return self

    def release(self) -> None:
        """Be done with it."""
        self._users -= 1
        if self._users <= 0 and self._file is not None:
            self._file.close()
            self._file = None

    def write(self, data: bytes) -> None:
        """Append, or lose it."""
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except OSError as error:
            self._say.cannot_write(self._path, error)
