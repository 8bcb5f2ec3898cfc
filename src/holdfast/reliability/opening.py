"""The one place where files of records are opened, or one line says why not."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import InputError


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; what may never end, such as a pipe, is refused."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise InputError(f"{path}: is {kind}, expected a file")
        stream = path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it.
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    with stream:
        try:
            yield stream
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
