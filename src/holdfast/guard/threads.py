"""How long a process had to wait for a processor, by what the kernel counts for each of its threads."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_RUNNABLE = b"R"


class Times(NamedTuple):
    """What the kernel's scheduler has counted for a thread."""

    ran_ns: int = 0
    waited_ns: int = 0
    """For a processor; a wait is added when it is over."""
    runs: int = 0
    """How often it was given a processor."""


def times(path: str) -> Times:
    """Return the content of a ``schedstat`` file, zeros where it cannot be read."""
    try:
        return Times(*map(int, _read(path).split()))
    except (OSError, ValueError, TypeError):
        return Times()


class Threads:
    """The threads of one process, and their times at the last look."""

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}/task"
        self._at_ns = 0
        self._before: dict[str, Times] = {}

    def starved_s(self) -> float:
        """Return how long a thread has waited for a processor since the last call, 0 at the first.

        Of several threads the one that waited longest counts: any of them may hold up the others.
        """
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - the names are all that is needed.
        except OSError:
            return 0.0
        now_ns = time.monotonic_ns()
        gap_ns, self._at_ns = now_ns - self._at_ns, now_ns
        before = self._before
        self._before = {name: times(f"{self._folder}/{name}/schedstat") for name in names}
        starved_ns = [self._starved_ns(name, before[name], gap_ns) for name in names if name in before]
        return max(starved_ns, default=0) / 1e9

    def _starved_ns(self, name: str, before: Times, gap_ns: int) -> int:
        now = self._before[name]
        over_ns = now.waited_ns - before.waited_ns
        if not self._is_runnable(name):
            return over_ns
        # It may have waited since long before the last look, and is not told of that until it has run.
        return max(over_ns, gap_ns - (now.ran_ns - before.ran_ns))

    def _is_runnable(self, name: str) -> bool:
        try:
            return _read(f"{self._folder}/{name}/stat").rpartition(b")")[2].split()[0] == _RUNNABLE
        except (OSError, IndexError):
            return False


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - often, and it has to be cheap.
        return file.read(512)
