"""Signals to the launcher: an orderly stop, and an end within seconds even when the orderly one is stuck.

Python runs signal handlers between bytecodes of the main thread, which may be waiting in C++ for another
node. So the interpreter also writes each signal's number to a pipe (``set_wakeup_fd``), and a thread that
reads it ends the process itself when its time is up.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from holdfast.errors import InputError


class Stopped(BaseException):
    """The launcher was asked to stop by a signal; a BaseException, so that no retry loop swallows it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.number = number


def parse_signals(names: str) -> set[signal.Signals]:
    """Return the signals of a list such as ``SIGTERM,SIGINT``."""
    numbers = set()
    for name in filter(None, (name.strip() for name in names.split(","))):
        if name not in signal.Signals.__members__ or name in ("SIGKILL", "SIGSTOP"):
            raise InputError(f"--signals-to-handle has {name!r}, expected signals that can be caught")
        numbers.add(signal.Signals[name])
    return numbers


class SignalWatch:
    """Turns the first stop signal into ``Stopped`` in the main thread; a second one kills at once."""

    def __init__(self, *, names: str, limit_s: float, kill_all: Callable[[], None]) -> None:
        self.received: signal.Signals | None = None
        self._is_closing = False
        self._limit_s = limit_s
        self._kill_all = kill_all
        self._numbers = parse_signals(names)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            self._numbers.discard(signal.SIGHUP)  # Started by nohup, which means it.
        read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(read_fd, True)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in sorted(self._numbers):
            signal.signal(number, self._handle)
        threading.Thread(target=self._watch, args=(read_fd,), name="holdfast-signals", daemon=True).start()

    def close(self) -> None:
        """Let nothing interrupt the main thread on its way out; time limit and second signal still hold."""
        self._is_closing = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None and not self._is_closing:
            self.received = signal.Signals(number)
            raise Stopped(self.received)

    def _watch(self, read_fd: int) -> None:
        first = self._next(read_fd)
        deadline = threading.Timer(self._limit_s, self._end, args=(first,))
        deadline.daemon = True
        deadline.start()
        began_s = time.monotonic()
        while True:
            self._next(read_fd)
            # A terminal and a scheduler often send the same thing twice within a moment.
            if time.monotonic() - began_s > 0.5:
                self._end(first)

    def _next(self, read_fd: int) -> signal.Signals:
        while True:
            number = os.read(read_fd, 1)[0]
            if number in self._numbers:
                return signal.Signals(number)

    def _end(self, number: signal.Signals) -> None:
        self._kill_all()
        os._exit(128 + number)
