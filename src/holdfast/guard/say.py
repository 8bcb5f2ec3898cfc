"""What the launcher and the guard say to the person at the terminal: whole lines on stderr, each once."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class Say:
    """Writes lines that begin with ``holdfast:``; a repeated topic is said only the first time."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Say it."""
        self.raw(f"holdfast: {text}\n")

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
        """Write text that is complete in itself, in one call so that lines stay whole."""
        try:
            data = text.encode(errors="replace")
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            return  # Nobody is listening any more; training goes on.
