"""The lab's own record of a worker: per step, how long it took and how much of that was waiting for others.

Waiting is wall time inside explicit ``torch.distributed`` calls; DDP's reducer communicates in C++ and is
not seen. One line is written per step, so that a killed worker leaves what it had.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.job.on_import import on_import
from holdfast.lab.beat import Beat
from holdfast.lab.control import rows_path

_PREFIXES = (
    "all_",
    "broadcast",
    "gather",
    "reduce_scatter",
    "scatter",
    "barrier",
    "monitored_",
    "batch_isend",
)
_PEER_ARGUMENT = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one rank."""

    rank: int
    step: int
    duration_s: float
    """Since the update before; 0 for the first."""
    wait_s: float
    """Inside explicit collectives, sends and receives."""
    own_s: float
    """The rest: what the rank needed for itself."""
    cpu_s: float
    """CPU time of the training thread; ``own_s / cpu_s`` is the inverse of the share of a core it got."""
    data_s: float
    """Inside the data loader; part of ``own_s``."""
    link_s: dict[int, float]
    """Per peer, inside sends to it and receives from it; part of ``wait_s``."""


_STEP_ROW = msgspec.json.Decoder(StepRow)


class Recorder:
    """Writes a row per step."""

    def __init__(self, folder: Path, *, rank: int, beat: Beat) -> None:
        self._rank = rank
        self._beat = beat
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(rows_path(folder, rank), flags, 0o600)
        self._last_s: float | None = None
        self._last_cpu_s = 0.0
        self._wait_s = 0.0
        self._data_s = 0.0
        self._link_s: dict[int, float] = {}
        self._peers: dict[int, int] = {}
        """Peer of each send or receive under way, by the id of its Work."""
        self._depth = 0
        self._thread = threading.get_ident()

    def install(self) -> None:
        """Hook into torch as soon as the script imports it."""
        self._beat.listen(self._end_step)
        on_import("torch.distributed", self._wrap_distributed)
        on_import("torch.utils.data.dataloader", self._wrap_loader)

    def _end_step(self, step: int) -> None:
        now_s, cpu_s = time.monotonic(), time.thread_time()
        duration_s = 0.0 if self._last_s is None else now_s - self._last_s
        own_s = max(0.0, duration_s - self._wait_s)
        row = StepRow(
            rank=self._rank,
            step=step,
            duration_s=duration_s,
            wait_s=self._wait_s,
            own_s=own_s,
            cpu_s=cpu_s - self._last_cpu_s,
            data_s=self._data_s,
            link_s=self._link_s,
        )
        os.write(self._fd, msgspec.json.encode(row) + b"\n")
        self._wait_s = self._data_s = 0.0
        self._link_s = {}
        self._last_s, self._last_cpu_s = now_s, cpu_s

    def _wrap_distributed(self) -> None:
        import torch.distributed as dist

        if not dist.is_available():
            return
        from torch.distributed import distributed_c10d

        for name in sorted(distributed_c10d.__all__):
            if name.startswith(_PREFIXES) or name == "reduce" or name in _PEER_ARGUMENT:
                timed = self._timed(getattr(distributed_c10d, name), name)
                # Both, as the same object: P2POp compares functions by identity.
                setattr(distributed_c10d, name, timed)
                setattr(dist, name, timed)
        dist.Work.wait = self._timed_wait(dist.Work.wait)  # type: ignore[method-assign]

    def _timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            peer = _peer(name, args, kwargs)
            result = self._time(function, peer, args, kwargs)
            if peer is not None and name in ("isend", "irecv") and result is not None:
                self._peers[id(result)] = peer
            return result

        return timed

    def _timed_wait(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wait)
        def timed(*args: Any, **kwargs: Any) -> Any:
            return self._time(wait, self._peers.pop(id(args[0]), None), args, kwargs)

        return timed

    def _time(self, function: Callable[..., Any], peer: int | None, args: Any, kwargs: Any) -> Any:
        # Calls within calls, and calls of other threads, are no further waiting of the training thread.
        if self._depth or threading.get_ident() != self._thread:
            return function(*args, **kwargs)
        started_s = time.monotonic()
        self._depth += 1
        try:
            return function(*args, **kwargs)
        finally:
            self._depth -= 1
            waited_s = time.monotonic() - started_s
            self._wait_s += waited_s
            if peer is not None:
                self._link_s[peer] = self._link_s.get(peer, 0.0) + waited_s

    def _wrap_loader(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        wrapped: Callable[[Any], Any] = _BaseDataLoaderIter.__next__

        def timed_next(iterator: Any) -> Any:
            started_s = time.monotonic()
            try:
                return wrapped(iterator)
            finally:
                self._data_s += time.monotonic() - started_s

        _BaseDataLoaderIter.__next__ = timed_next  # type: ignore[assignment, method-assign]


def _peer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    argument = _PEER_ARGUMENT.get(name)
    if argument is None:
        return None
    peer = args[1] if len(args) > 1 else kwargs.get(argument)
    return peer if isinstance(peer, int) else None


def read_rows(folder: Path, rank: int) -> list[StepRow]:
    """Return what a rank recorded, without a last line cut short by its death."""
    path = rows_path(folder, rank)
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [_STEP_ROW.decode(line) for line in lines]
