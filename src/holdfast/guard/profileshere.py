"""Profiles of the ranks of one node: ordered, sampled meanwhile, and reduced beside the training.

The traces stay on the node; what goes to the controller is a pattern of each rank, and what functions are
only where it asks for them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.diagnose.reduce import Known, WorkerPattern
from holdfast.guard.reducing import Found
from holdfast.guard.usage import Connections, DeviceClocks, Producer, Threads, UsageSampler
from holdfast.job.files import replace_file
from holdfast.job.profiling import profile_path, profiled_path
from holdfast.telemetry import ProfileOrder, ProfileResult

_PROFILE_RESULT = msgspec.json.Decoder(ProfileResult)
_FOUND = msgspec.msgpack.Decoder(Found)
PATIENCE_S = 180.0
"""For all ranks of a node to have profiled, from the order on."""
_REDUCING_S = 300.0
_KEPT = 3
"""Profiles whose traces stay on the disk."""


class NodeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order on one node."""

    order: str
    results: list[ProfileResult]
    patterns: list[WorkerPattern]
    usage: dict[int, dict[str, float]] = {}
    """Mean use of each resource by each rank, per second."""
    unread: list[str] = []
    """Why a trace could not be read."""


class ProfilesHere:
    """One order at a time; its methods never wait."""

    def __init__(self, rings: Path, pids: Callable[[], Mapping[int, int]], folder: Path) -> None:
        """Lay orders beside the rings, and traces below a folder of this run."""
        self._rings = rings
        self._pids = pids
        self._folder = folder
        self._order: ProfileOrder | None = None
        self._state: Literal["idle", "profiling", "reducing"] = "idle"
        self._until_s = 0.0
        self._sampler: UsageSampler | None = None
        self._reducer: subprocess.Popen[bytes] | None = None
        self._results: list[ProfileResult] = []
        self._known: dict[int, Known] = {}

    def order(self, order: ProfileOrder) -> None:
        """Have the ranks of this node profiled; a second order waits for nobody, and is not carried out."""
        pids = {rank: pid for rank, pid in self._pids().items() if rank in order.ranks}
        if self._state != "idle" or not pids:
            return
        here = msgspec.structs.replace(order, ranks=sorted(pids), folder=str(self._folder / order.id))
        try:
            replace_file(profile_path(self._rings), msgspec.json.encode(here))
        except OSError:  # What cannot be ordered is not carried out, and missing in the end.
            return
        self._order, self._state, self._results = here, "profiling", []
        self._until_s = time.monotonic() + PATIENCE_S
        producers: list[Producer] = [Threads(pids), Connections(pids), DeviceClocks(self._rings, pids)]
        self._sampler = UsageSampler(producers)
        self._sampler.start()

    def look(self) -> NodeProfile | None:
        """Return what came of an order, once, when it is all there."""
        if self._order is None or self._state == "idle":
            return None
        if self._state == "profiling":
            self._results = self._read_results(self._order)
            if len(self._results) == len(self._order.ranks) or time.monotonic() > self._until_s:
                return self._reduce(self._order)
            return None
        return self._take_reduced(self._order)

    def functions(self, numbers: Iterable[int]) -> dict[int, Known]:
        """Return what some functions of the last profile are."""
        return {number: self._known[number] for number in numbers if number in self._known}

    def _read_results(self, order: ProfileOrder) -> list[ProfileResult]:
        found = []
        for rank in order.ranks:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                path = profiled_path(self._rings, order.id, rank)
                found.append(_PROFILE_RESULT.decode(path.read_bytes()))
        return found

    def _reduce(self, order: ProfileOrder) -> NodeProfile | None:
        """Have the traces reduced in a process of its own, which gives way to the training."""
        assert self._sampler is not None
        usage = self._sampler.stop()
        traces = [each.trace for each in self._results if each.trace is not None]
        if not traces:
            return self._close(order, Found(reduced=[], unread=[]))
        folder = Path(order.folder)
        words = [sys.executable, "-P", "-m", "holdfast.guard.reducing", "--out", str(folder / _REDUCED)]
        try:
            (folder / _USAGE).write_bytes(msgspec.msgpack.encode(usage))
            self._reducer = subprocess.Popen(
                [*words, "--usage", str(folder / _USAGE), *traces],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return self._close(order, Found(reduced=[], unread=[]))
        self._state, self._until_s = "reducing", time.monotonic() + _REDUCING_S
        return None

    def _take_reduced(self, order: ProfileOrder) -> NodeProfile | None:
        assert self._reducer is not None
        if self._reducer.poll() is None:
            if time.monotonic() < self._until_s:
                return None
            self._reducer.kill()
            self._reducer.wait()
        found = Found(reduced=[], unread=[])
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # Then all of its ranks are missing.
            found = _FOUND.decode((Path(order.folder) / _REDUCED).read_bytes())
        return self._close(order, found)

    def _close(self, order: ProfileOrder, found: Found) -> NodeProfile:
        self._state, self._reducer, self._sampler = "idle", None, None
        self._known = {}
        for each in found.reduced:
            self._known |= each.known
        for rank in order.ranks:
            with contextlib.suppress(OSError):
                profiled_path(self._rings, order.id, rank).unlink(missing_ok=True)
        self._sweep()
        return NodeProfile(
            order=order.id,
            results=self._results,
            patterns=[each.pattern for each in found.reduced],
            usage={each.pattern.rank: each.usage for each in found.reduced},
            unread=[each.why for each in found.unread],
        )

    def _sweep(self) -> None:
        """Remove the traces of old profiles; what was found in them stays."""
        with contextlib.suppress(OSError):
            folders = sorted(self._folder.iterdir(), key=lambda folder: folder.stat().st_mtime)
            for folder in folders[:-_KEPT]:
                for trace in folder.glob("rank_*.pt.trace.json*"):
                    trace.unlink(missing_ok=True)


_REDUCED, _USAGE = "reduced.msgpack", "usage.msgpack"
