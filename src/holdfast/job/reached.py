"""How far a run got: a few bytes in a file of its checkpoints, written after every step.

They are written to memory that the kernel keeps, so they outlive the process, however it ends; whoever goes
on from a checkpoint can say how much was lost. Nobody relies on them for anything else.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

_NAME = "reached"
_FORM = struct.Struct("<qd")


class Progress(NamedTuple):
    """A step, and when it had been made."""

    step: int
    at_s: float
    """Seconds since 1970."""


class Reached:
    """The writing end; where nothing can be written it does nothing."""

    def __init__(self, folder: Path) -> None:
        self._map: mmap.mmap | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(fd, 0, _FORM.size)
                self._map = mmap.mmap(fd, _FORM.size)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return

    def note(self, step: int) -> None:
        """Note that so many steps are final."""
        if self._map is not None:
            _FORM.pack_into(self._map, 0, step, time.time())


def read_reached(folder: Path) -> Progress | None:
    """Return how far the last run got, None where nobody knows."""
    try:
        step, at_s = _FORM.unpack((folder / _NAME).read_bytes())
    except (OSError, struct.error):
        return None
    return Progress(step, at_s) if step >= 0 and at_s > 0 else None
