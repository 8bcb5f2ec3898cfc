"""The bytes of a file that somebody named, or one line that says why not."""

from __future__ import annotations

import stat
from pathlib import Path

from holdfast.errors import InputError


def read_bytes(path: Path, *, most: int | None = None) -> bytes:
    """Return what is in a file; one that may never end, such as a pipe, is refused."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path}: cannot be read: expected a regular file")
        if most is not None and status.st_size > most:
            raise InputError(f"{path}: has {status.st_size} bytes, expected at most {most}")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def decode(path: Path, data: bytes, *, encoding: str = "utf-8") -> str:
    """Return bytes as text."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read: it is not text in UTF-8") from error
