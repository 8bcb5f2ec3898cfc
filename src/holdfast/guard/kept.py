"""Small files of the kernel that are read again and again: kept open, which takes a third of the time."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable

_PAGE = 4096
_MOST = 1 << 20
"""Bytes of one file; the kernel's are far smaller, and something else may lie in their place."""


class Kept:
    """Reads files by path, over descriptors that stay open until dropped."""

    def __init__(self, most: int | None = None) -> None:
        """Keep at most that many open; half of what the process may have, by default."""
        self._fds: dict[str, int] = {}
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # "No limit" is -1.
        self._most = most if most is not None else (soft // 2 if soft >= 0 else 1 << 16)

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._fds)

    def read(self, path: str, size: int = _PAGE) -> bytes | None:
        """Return the beginning of a file as it is now, None where it cannot be read."""
        fd = self._fds.get(path)
        try:
            if fd is not None:
                return os.pread(fd, size, 0)
            return self._read_first(path, size)
        except OSError:  # It is gone, or not ours to read: either way there is nothing to be told.
            self.drop([path])
            return None

    def read_all(self, path: str) -> bytes | None:
        """Return a whole file, which the kernel may hand out in pieces."""
        data = self.read(path, 1 << 16)
        fd = self._fds.get(path)
        try:
            while data and fd is not None and len(data) < _MOST and (more := os.pread(fd, _PAGE, len(data))):
                data += more
        except OSError:  # What came before is as good as it gets.
            self.drop([path])
        return data

    def drop(self, paths: Iterable[str]) -> None:
        """Let go of files that are not needed any more."""
        for path in paths:
            fd = self._fds.pop(path, None)
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def close(self) -> None:
        """Let go of all."""
        self.drop(list(self._fds))

    def __del__(self) -> None:
        """Let go of all, as a file does that nobody holds any more."""
        self.close()

    def _read_first(self, path: str, size: int) -> bytes:
        # Without waiting, should a pipe lie there.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if len(self._fds) < self._most:
            self._fds[path] = fd
            return os.pread(fd, size, 0)
        try:
            return os.pread(fd, size, 0)
        finally:
            os.close(fd)


def rest(data: bytes, start: bytes) -> bytes | None:
    """Return what follows in the first line that starts so, None where there is none."""
    if data.startswith(start):
        at = 0
    else:
        at = data.find(b"\n" + start) + 1
        if at == 0:
            return None
    at += len(start)
    end = data.find(b"\n", at)
    return data[at:end] if end >= 0 else data[at:]


def number(value: bytes | None) -> int | None:
    """Return a counter as a number, None where it is absent or no counter."""
    digits = (value or b"").strip()
    return int(digits) if digits.isdigit() and len(digits) <= 20 else None


def in_bytes(value: bytes | None) -> int | None:
    """Return a size that is written as ``12 kB``."""
    size = number((value or b"").strip().removesuffix(b"kB"))
    return None if size is None else size * 1024
