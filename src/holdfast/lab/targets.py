"""Where the targets of faults stand: their processes, and the steps they are in as the rings tell."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from holdfast.job.ring import RingReader, ring_path


class Targets(Protocol):
    """What a director must know of a job."""

    def pid(self, rank: int) -> int | None:
        """Return the process of a rank, None where there is none."""

    def step(self, rank: int) -> int | None:
        """Return the step that a rank is in, None before its worker has started."""

    def step_s(self, rank: int) -> float | None:
        """Return the median duration of the rank's last steps, None before it has finished two."""


class RingTargets:
    """The workers of one node: steps from the folder of rings, processes from a map or else from the rings.

    A restarted worker replaces its ring, and is followed. The map may change while the job runs.
    """

    def __init__(
        self, rings: Path, pids: Mapping[int, int] | Callable[[int], int | None] | None = None
    ) -> None:
        self._rings = rings
        self._pids = pids
        self._readers: dict[int, RingReader] = {}
        self._steps: dict[int, int] = {}
        self._durations: dict[int, deque[float]] = {}

    def pid(self, rank: int) -> int | None:
        """Return the process of a rank."""
        if callable(self._pids):
            return self._pids(rank)
        if self._pids is not None:
            return self._pids.get(rank)
        reader = self._reader(rank)
        return reader.pid if reader is not None and Path(f"/proc/{reader.pid}").exists() else None

    def step(self, rank: int) -> int | None:
        """Return the step that a rank is in: the last one finished and one more."""
        reader = self._reader(rank)
        if reader is None:
            return None
        for step in reader.read():
            self._steps[rank] = step.step + 1
            if step.duration_s > 0:
                self._durations[rank].append(step.duration_s)
        return self._steps[rank]

    def step_s(self, rank: int) -> float | None:
        """Return the median of the last steps seen."""
        durations = self._durations.get(rank)
        return statistics.median(durations) if durations else None

    def _reader(self, rank: int) -> RingReader | None:
        path = ring_path(self._rings, rank)
        try:
            inode = path.stat().st_ino
            reader = self._readers.get(rank)
            if reader is None or reader.inode != inode:
                reader = self._readers[rank] = RingReader(path)
                self._steps[rank] = 0
                self._durations[rank] = deque(maxlen=50)
            return reader
        except (OSError, ValueError):  # Not there yet, or gone with its job.
            return None
