"""Looks about once a second at what the host does to each worker; ``detect.host`` makes rates of it.

A look costs CPU time on the machine that trains: files are kept open, and whatever can be told from a file
already read is not asked for again (``benchmarks/sampling.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.detect.counters import ProcessCounters, Sample
from holdfast.guard.cgroups import CpuGroups
from holdfast.guard.counters import Process
from holdfast.guard.kept import Kept
from holdfast.guard.machine import Machine


class Sampler:
    """Reads the kernel's counters of a node and of its workers; it never raises."""

    def __init__(
        self,
        pids: Callable[[], Mapping[int, int]],
        *,
        root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at the processes that ``pids`` names by rank; ``root`` is where the kernel's files are."""
        self._pids = pids
        self._root = root
        self._clock = clock
        self._kept = Kept()
        self._groups = CpuGroups(root, self._kept)
        self._machine = Machine(root, self._kept)
        self._processes: dict[int, Process] = {}

    def sample(self) -> Sample:
        """Return the counters as they are now; whoever is gone is not among them."""
        pids = self._known()
        self._forget(set(pids.values()))
        self._groups.renew()
        node, delays = self._machine.read(), self._machine.delays()
        # The processes last, and the clock just before them: theirs are the rates that matter.
        at_s = self._clock()
        found = {rank: self._read(pid, delays) for rank, pid in sorted(pids.items())}
        processes = {rank: counters for rank, counters in found.items() if counters is not None}
        return Sample(at_s=at_s, node=node, processes=processes)

    def close(self) -> None:
        """Let go of all files."""
        self._forget(set())
        self._kept.close()

    def _known(self) -> dict[int, int]:
        try:
            return dict(self._pids())
        except Exception:  # Without knowing the workers, the machine can still be looked at.
            return {}

    def _forget(self, alive: set[int]) -> None:
        for pid in [pid for pid in self._processes if pid not in alive]:
            self._processes.pop(pid).close()

    def _read(self, pid: int, delays: bytes | None) -> ProcessCounters | None:
        known = self._processes.pop(pid, None)
        if known is not None:
            counters = known.read(delays)
            if counters is not None:
                self._processes[pid] = known
                return counters
            known.close()
        # Files that were open belong to a process that ended; another may have its number by now.
        fresh = Process(pid, self._root, self._kept, self._groups)
        counters = fresh.read(delays)
        if counters is None:
            fresh.close()
        else:
            self._processes[pid] = fresh
        return counters
