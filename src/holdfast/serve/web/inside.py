"""Open files of a run directory, where a job may put whatever it wants, at any moment.

What was opened is what is looked at: no link is followed, not even one that has just come, and no pipe waited
for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def open_folder(path: Path) -> Iterator[int | None]:
    """Open a folder; None: it is none, or a link to one."""
    fd = _open(path, os.O_DIRECTORY)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


@contextmanager
def open_file(folder: int | None, name: str) -> Iterator[int | None]:
    """Open a regular file of an open folder; None: it is none, or cannot be read."""
    fd = _open(name, 0, folder=folder) if folder is not None else None
    try:
        yield fd if fd is not None and stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        if fd is not None:
            os.close(fd)


def path_of(fd: int) -> Path:
    """Return a path that leads to what is open, whatever its name leads to by now."""
    return Path(f"/proc/self/fd/{fd}")


def _open(path: Path | str, flags: int, *, folder: int | None = None) -> int | None:
    try:
        return os.open(path, _FLAGS | flags, dir_fd=folder)
    except OSError:
        return None
