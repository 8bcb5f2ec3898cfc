"""The rings of one node's workers: a private folder in memory, and a reader of all that is in it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

import psutil

from holdfast.job.place import rings_folder
from holdfast.job.ring import RingReader
from holdfast.values import Step


def make_rings() -> Path:
    """Create an empty folder for this process's workers, and remove what dead launchers left."""
    folder = rings_folder(f"run-{os.getpid()}-{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700, parents=True)
    for other in folder.parent.glob("run-*"):
        pid = other.name.split("-")[1]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(other, ignore_errors=True)
    return folder


class Rings:
    """Reads every ring of a folder, also those that appear or are replaced later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readers: dict[str, RingReader] = {}
        self._lost_before = 0

    @property
    def lost(self) -> int:
        """Records that were overwritten before they were read."""
        return self._lost_before + sum(reader.lost for reader in self._readers.values())

    def read(self) -> list[Step]:
        """Return the steps finished since the last call, rank by rank, oldest first."""
        steps: list[Step] = []
        for path in sorted(self._folder.glob("rank_*.ring")):
            # A ring that cannot be read (its writer is just starting, or is of another version) is no ring.
            with contextlib.suppress(OSError, ValueError):
                steps += self._reader(path).read()
        return steps

    def _reader(self, path: Path) -> RingReader:
        reader = self._readers.get(path.name)
        if reader is None or reader.inode != path.stat().st_ino:
            if reader is not None:
                self._lost_before += reader.lost
                reader.close()
            reader = self._readers[path.name] = RingReader(path)
        return reader
