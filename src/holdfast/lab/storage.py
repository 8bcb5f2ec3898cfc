"""Lab storage: ``os.pread`` of this process at a nominal rate, which a fault divides."""

from __future__ import annotations

import os

from holdfast.lab.device import Pacer

STORAGE_ENV = "HOLDFAST_LAB_STORAGE_BYTES_S"
DEFAULT_STORAGE_BYTES_S = 2_000_000.0
"""Rate of healthy lab storage: 2 ms for a record of 4 KiB."""


class Storage:
    """Wraps ``os.pread`` once it is needed; a job that meets no storage fault reads at full speed."""

    def __init__(self, bytes_s: float) -> None:
        self.slowdown = 1.0
        self._bytes_s = bytes_s
        self._pacer = Pacer()
        self._pread = os.pread
        self._is_installed = False

    def install(self) -> None:
        """Put every later ``os.pread`` of this process on lab storage."""
        if not self._is_installed:
            self._is_installed = True
            os.pread = self._read

    def _read(self, fd: int, length: int, offset: int, /) -> bytes:
        self._pacer.begin()
        content = self._pread(fd, length, offset)
        self._pacer.finish(len(content) / self._bytes_s * self.slowdown)
        return content
