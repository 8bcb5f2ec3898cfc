"""How much of each resource the ranks of a node use, many times a second, while they are profiled.

A *producer* tells totals by rank and resource, and the sampler makes shares of their growth: a device's own
counters would be one more producer. It runs in a thread of the guard, never in a training process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from holdfast.guard.sockdiag import SocketBytes, namespaces, sockets_of

EVERY_S = 0.02
_LONGEST_S = 300.0
_RENEW_S = 1.0
"""How often to look which threads and sockets a rank has."""
_TALKERS = ("pt_gloo", "gloo", "pt_nccl", "nccl", "pt_mpi", "ucx")
"""How the names of threads begin that communicate."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one rank: what was used of it up to each moment since the one before."""

    at_ns: list[int]
    """The middle between two looks, on the clock that traces are written by."""
    per_s: list[float]


Totals = Mapping[tuple[int, str], float]
"""By rank and resource."""


class Producer(Protocol):
    """Whoever knows how much of something was used."""

    def read(self) -> Totals:
        """Return what was used so far; who is gone is not there."""
        ...

    def close(self) -> None:
        """Let go of what it takes to look."""
        ...


class UsageSampler:
    """Looks at all producers in a thread of its own, until it is stopped or has forgotten the time."""

    def __init__(
        self,
        producers: Iterable[Producer],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._producers = list(producers)
        self._every_s = every_s
        self._clock = clock
        self._looks: list[tuple[int, dict[tuple[int, str], float]]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-usage", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> dict[int, dict[str, Series]]:
        """Look no more, and return what was used, by rank and resource."""
        self._is_over.set()
        self._thread.join(5.0)
        for producer in self._producers:
            producer.close()
        return to_series(self._looks)

    def _run(self) -> None:
        until_s = time.monotonic() + _LONGEST_S
        due_s = time.monotonic()
        while not self._is_over.is_set() and due_s < until_s:
            self._look()
            due_s = max(due_s + self._every_s, time.monotonic())
            self._is_over.wait(max(0.0, due_s - time.monotonic()))

    def _look(self) -> None:
        totals: dict[tuple[int, str], float] = {}
        at_ns = self._clock()
        for producer in self._producers:
            with contextlib.suppress(OSError, ValueError):  # Who is gone uses nothing.
                totals |= producer.read()
        self._looks.append((at_ns, totals))


def to_series(looks: list[tuple[int, dict[tuple[int, str], float]]]) -> dict[int, dict[str, Series]]:
    """Return what was used between looks; a total that shrinks is one that has begun anew."""
    moments: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for at_ns, totals in looks:
        for key, total in totals.items():
            moments.setdefault(key, []).append((at_ns, total))
    found: dict[int, dict[str, Series]] = {}
    for (rank, resource), seen in moments.items():
        at = np.array([moment for moment, _ in seen], np.int64)
        totals_seen = np.array([each for _, each in seen], np.float64)
        gap_ns, grown = np.diff(at), np.diff(totals_seen)
        good = (gap_ns > 0) & (grown >= 0)
        middle = at[:-1] + gap_ns // 2
        per_s = grown[good] / (gap_ns[good] / 1e9)
        found.setdefault(rank, {})[resource] = Series(at_ns=middle[good].tolist(), per_s=per_s.tolist())
    return found


class Threads:
    """CPU time of the thread that trains (``cpu``) and of those that communicate, and page faults."""

    def __init__(self, pids: Mapping[int, int], root: str = "/proc") -> None:
        """Look at these processes, by rank."""
        self._pids = dict(pids)
        self._root = root
        self._talkers: dict[int, list[int]] = {}
        self._renewed_s = float("-inf")

    def read(self) -> Totals:
        """Return seconds, and counts of faults."""
        if time.monotonic() - self._renewed_s > _RENEW_S:
            self._renewed_s = time.monotonic()
            self._talkers = {pid: self._find_talkers(pid) for pid in self._pids.values()}
        totals: dict[tuple[int, str], float] = {}
        for rank, pid in self._pids.items():
            with contextlib.suppress(OSError, ValueError, IndexError):
                totals[rank, "cpu"] = self._ran_s(pid, pid)
                totals[rank, "communication"] = sum(self._talked_s(pid, each) for each in self._talkers[pid])
                fields = Path(f"{self._root}/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                totals[rank, "faults"] = float(fields[7]) + float(fields[9])
        return totals

    def close(self) -> None:
        """There is nothing to let go of."""

    def _ran_s(self, pid: int, thread: int) -> float:
        return int(Path(f"{self._root}/{pid}/task/{thread}/schedstat").read_bytes().split()[0]) / 1e9

    def _talked_s(self, pid: int, thread: int) -> float:
        try:
            return self._ran_s(pid, thread)
        except FileNotFoundError:  # Threads come and go.
            return 0.0

    def _find_talkers(self, pid: int) -> list[int]:
        found = []
        with contextlib.suppress(OSError):
            for task in Path(f"{self._root}/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    if (task / "comm").read_text().startswith(_TALKERS):
                        found.append(int(task.name))
        return found


class Connections:
    """Bytes through the TCP connections of each rank (``network``)."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = dict(pids)
        self._networks: list[SocketBytes] | None = None
        """One for each network namespace; made in the thread that looks, which enters them for that."""
        self._sockets: dict[int, set[int]] = {}
        self._renewed_s = float("-inf")

    def read(self) -> Totals:
        """Return bytes in both directions."""
        if self._networks is None:
            self._networks = [SocketBytes(path) for path in namespaces(self._pids.values())]
        if time.monotonic() - self._renewed_s > _RENEW_S:
            self._renewed_s = time.monotonic()
            self._sockets = sockets_of(self._pids.values())
        seen: dict[int, int] = {}
        for network in self._networks:
            seen |= network.read()
        if not seen:
            return {}
        return {
            (rank, "network"): float(sum(seen.get(inode, 0) for inode in self._sockets.get(pid, ())))
            for rank, pid in self._pids.items()
        }

    def close(self) -> None:
        """Close the sockets to the kernel."""
        for network in self._networks or ():
            network.close()


class DeviceClocks:
    """How fast devices run, of what they could (``device``), where somebody writes that down for each rank.

    A file ``device_<rank>`` in the folder of the rings holds a number from 0 to 1; this is how an emulated
    accelerator tells what a real one's driver would.
    """

    def __init__(self, folder: Path, ranks: Iterable[int]) -> None:
        self._paths = {rank: folder / f"device_{rank}" for rank in ranks}
        self._sums: dict[int, float] = {}
        self._last_s: float | None = None

    def read(self) -> Totals:
        """Return the sum of clock times seconds: its growth is the mean clock."""
        now_s = time.monotonic()
        gap_s = now_s - self._last_s if self._last_s is not None else 0.0
        self._last_s = now_s
        for rank, path in self._paths.items():
            with contextlib.suppress(OSError, ValueError):
                self._sums[rank] = self._sums.get(rank, 0.0) + gap_s * float(path.read_bytes())
        return {(rank, "device"): total for rank, total in self._sums.items()}

    def close(self) -> None:
        """There is nothing to let go of."""
