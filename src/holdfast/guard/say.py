"""What the launcher and the guard say to the person at the terminal: whole lines on stderr, each once."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

GREETING = "holdfast: "
"""Every line begins with it."""


def write_all(fd: int, data: bytes) -> None:
    """Write everything, also where the descriptor does not block; raise when the reader is gone."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [], 1.0)


class Say:
    """Writes lines that begin with ``holdfast:``; a repeated topic is said only the first time."""

    def __init__(self, fd: int = 2, put: Callable[[int, bytes], None] = write_all) -> None:
        self._fd = fd
        self._put = put
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Say it."""
        self.raw(f"{GREETING}{text}\n")

    def once(self, topic: str, text: str) -> None:
        """Say it, unless the topic has been spoken of before."""
        with self._lock:
            if topic in self._said:
                return
            self._said.add(topic)
        self.line(text)

    def cannot_write(self, path: Path, error: OSError) -> None:
        """Say, for the first of all files that cannot be written, that training goes on without it."""
        self.once("files", f"cannot write {path}: {error.strerror}; training goes on")

    def raw(self, text: str) -> None:
        """Write text that is complete in itself, in one piece so that lines stay whole."""
        try:
            self._put(self._fd, text.encode(errors="replace"))
        except OSError:
            return  # Nobody is listening any more; training goes on.
