"""The rings of one node's workers: a private folder in memory, and a reader of all that is in it.

Workers come and go for as long as a job lives. What the dead leave is removed once the others have gone on
without them for a while; before that it may tell why a job stands still.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from holdfast.job.channels import channels_path
from holdfast.job.linkpage import links_path
from holdfast.job.place import rings_folder
from holdfast.job.ring import RingReader, ring_path
from holdfast.job.status import page_path as status_path
from holdfast.telemetry import InCall, Step

_PREFIX = "launch-"
_OWNER = "owner.lock"
_FORGET_AFTER_S = 60.0


class RingsFolder:
    """A folder for a launcher's workers; what launchers that died have left is removed on the way.

    The owner holds a lock for as long as it lives. That tells the dead from the living also where
    containers share the memory but not the process numbers.
    """

    def __init__(self) -> None:
        self.path = rings_folder(f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
        self._lock: int | None = None
        with contextlib.suppress(OSError):
            self._lock = _take(self.path / _OWNER)
            self._sweep()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _sweep(self) -> None:
        for other in self.path.parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                os.close(_take(other / _OWNER, flags=os.O_RDWR))
                shutil.rmtree(other, ignore_errors=True)


def _take(lock: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Lock the file and return its descriptor; raise where somebody else has it."""
    fd = os.open(lock, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


class Rings:
    """Reads every ring of a folder, also those that appear or are replaced later."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._readers: dict[str, RingReader] = {}
        self._heard_s: dict[str, float] = {}
        """When each ring had something new."""
        self._lost_before = 0

    @property
    def lost(self) -> int:
        """Records that were overwritten before they were read."""
        return self._lost_before + sum(reader.lost for reader in self._readers.values())

    @property
    def pids(self) -> dict[int, int]:
        """The process that writes each rank's ring."""
        return {reader.rank: reader.pid for reader in self._readers.values()}

    def in_calls(self) -> dict[int, InCall]:
        """Return what every rank is in the midst of."""
        return {reader.rank: reader.in_call() for reader in self._readers.values()}

    def read(self) -> list[Step]:
        """Return the steps finished since the last call, rank by rank, oldest first."""
        steps: list[Step] = []
        now_s = self._clock()
        for path in sorted(self._folder.glob("rank_*.ring")):
            before = len(steps)
            # A ring that cannot be read (its writer is just starting, or is of another version) is no ring.
            with contextlib.suppress(OSError, ValueError):
                steps += self._renew(path, now_s)
            reader = self._readers.get(path.name)
            steps += reader.read() if reader is not None else []
            if len(steps) > before:
                self._heard_s[path.name] = now_s
        if steps:
            self._forget(now_s - _FORGET_AFTER_S)
        return steps

    def _renew(self, path: Path, now_s: float) -> list[Step]:
        """Open a ring that is new, and return what was left unread in the one that it replaced."""
        old = self._readers.get(path.name)
        if old is not None and old.inode == path.stat().st_ino:
            return []
        self._readers[path.name] = RingReader(path)
        self._heard_s[path.name] = now_s
        return self._close(old) if old is not None else []

    def _close(self, reader: RingReader) -> list[Step]:
        rest = reader.read()
        self._lost_before += reader.lost
        reader.close()
        return rest

    def _forget(self, before_s: float) -> None:
        for name in [name for name, heard_s in self._heard_s.items() if heard_s < before_s]:
            reader = self._readers[name]
            if _is_gone(reader.pid):
                del self._readers[name], self._heard_s[name]
                self._close(reader)
                self._remove(reader.rank)

    def _remove(self, rank: int) -> None:
        for path_of in (status_path, links_path, channels_path, ring_path):
            with contextlib.suppress(OSError):
                path_of(self._folder, rank).unlink(missing_ok=True)


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error as error:
        return isinstance(error, psutil.NoSuchProcess)
