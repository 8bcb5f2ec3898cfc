"""The status pages of one node's workers, each with a hold on the process that writes it.

The hold is a descriptor of the process, taken when the page is first seen, so that what is read and what is
killed is that process and never one that was given its number later.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast.guard.threads import Threads, times
from holdfast.job.ring import RingReader, ring_path
from holdfast.job.status import StatusReader, started_ticks
from holdfast.telemetry import Status

_DEAD = "ZXx"


class Page:
    """One worker's page and process; raises ``OSError`` or ``ValueError`` where they are not to be had."""

    def __init__(self, path: Path) -> None:
        self._reader = StatusReader(path)
        self.inode, self.rank, self.pid = self._reader.inode, self._reader.rank, self._reader.pid
        self.pp = self._reader.pp
        self._fds: list[int] = []
        self._threads = Threads(self.pid)
        try:
            self._fds.append(os.pidfd_open(self.pid))
            self._fds.append(os.open(f"/proc/{self.pid}/stat", os.O_RDONLY | os.O_CLOEXEC))
            # After the hold was taken: a process of that number and start was the writer, and still is.
            if started_ticks(self.pid) != self._reader.started_ticks:
                raise ValueError(f"process {self.pid} is not the one that made {path}")
        except (OSError, ValueError):
            self.close()
            raise

    def read(self) -> Status:
        """Return where the worker is."""
        return self._reader.read()

    def state(self) -> str | None:
        """Return the kernel's letter for what the process does, None when it is dead."""
        if not self._fds:
            return None
        try:
            text = os.pread(self._fds[1], 512, 0)
        except OSError:
            return None
        letter = chr(text[text.rindex(b")") + 2])
        return None if letter in _DEAD else letter

    def runs(self) -> int:
        """Return a number that changes when the process has run, 0 where the kernel does not tell."""
        return times(f"/proc/{self.pid}/schedstat").runs

    def starved_s(self) -> float:
        """Return how long it has waited for a processor since the last call, 0 at the first."""
        return self._threads.starved_s()

    def forget_starving(self) -> None:
        """Let the next call of ``starved_s`` be the first."""
        self._threads = Threads(self.pid)

    def kill(self) -> None:
        """End the process at once; one that is gone already stays gone."""
        if self._fds:
            # Not allowed: it has changed its user. There is nothing left to do about it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._fds[0], signal.SIGKILL)

    def close(self) -> None:
        """Let go of everything."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self._reader.close()


class Pages:
    """Every page of a folder whose writer lives and is a worker of ours."""

    def __init__(self, folder: Path, workers: Callable[[], Collection[int]]) -> None:
        self._folder = folder
        self._workers = workers
        self._pages: dict[str, Page] = {}

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages.values())

    def __len__(self) -> int:
        return len(self._pages)

    def refresh(self) -> None:
        """Take up pages that are new or were replaced, and let go of those of the dead."""
        for name in [name for name, page in self._pages.items() if page.state() is None]:
            self._pages.pop(name).close()
        for path in sorted(self._folder.glob("status_*.page")):
            # A page that cannot be read (its writer is just starting, or is dead) is no page.
            with contextlib.suppress(OSError, ValueError):
                self._renew(path)

    def _renew(self, path: Path) -> None:
        old = self._pages.get(path.name)
        if old is not None and old.inode == path.stat().st_ino:
            return
        page = Page(path)
        if not self._is_worker(page):
            page.close()
            return
        self._pages[path.name] = page
        if old is not None:
            old.close()

    def _is_worker(self, page: Page) -> bool:
        """Say whether a ring or the event log knows the writer of a page too."""
        with contextlib.suppress(OSError, ValueError):
            ring = RingReader(ring_path(self._folder, page.rank))
            ring.close()
            if ring.pid == page.pid:
                return True
        return page.pid in self._workers()
