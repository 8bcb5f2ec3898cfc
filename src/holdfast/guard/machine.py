"""Reads what the kernel has counted for the whole machine."""

from __future__ import annotations

from typing import Any

from holdfast.detect.counters import NodeCounters, Pressure
from holdfast.guard.kept import Kept, in_bytes, number, rest

_TIMES = 8
"""Columns of processor time that exclude each other; those behind are part of the first two."""


class Machine:
    """The counters of one machine; its files are kept open."""

    def __init__(self, root: str, kept: Kept) -> None:
        self._root = root
        self._kept = kept

    def read(self) -> NodeCounters:
        """Return the counters as they are now, each None that the machine does not have."""
        segments = self._segments()
        return NodeCounters(
            **self._processors(),
            cpu_pressure=self._pressure("cpu"),
            io_pressure=self._pressure("io"),
            memory_pressure=self._pressure("memory"),
            sent_segments=number(segments.get(b"OutSegs")),
            retransmitted_segments=number(segments.get(b"RetransSegs")),
            available_bytes=in_bytes(rest(self._text("meminfo"), b"MemAvailable:")),
            swapped_in_pages=number(rest(self._text("vmstat"), b"pswpin ")),
        )

    def delays(self) -> bytes | None:
        """Return what the kernel says about whether it counts how long processes wait for storage."""
        return self._kept.read(f"{self._root}/sys/kernel/task_delayacct")

    def _text(self, name: str) -> bytes:
        return self._kept.read_all(f"{self._root}/{name}") or b""

    def _processors(self) -> dict[str, Any]:
        data = self._text("stat")
        times = [number(word) for word in (rest(data, b"cpu ") or b"").split()[:_TIMES]]
        ticks = [each for each in times if each is not None]
        is_whole = len(ticks) == _TIMES
        return {
            "total_ticks": sum(ticks) if is_whole else None,
            "idle_ticks": ticks[3] if is_whole else None,
            "iowait_ticks": ticks[4] if is_whole else None,
            "steal_ticks": ticks[7] if is_whole else None,
            "running": number(rest(data, b"procs_running ")),
            "context_switches": number(rest(data, b"ctxt ")),
        }

    def _pressure(self, name: str) -> Pressure | None:
        data = self._text(f"pressure/{name}")
        some, full = (
            number((rest(data, kind) or b"").rpartition(b"total=")[2]) for kind in (b"some ", b"full ")
        )
        if some is None:
            return None
        return Pressure(some_s=some / 1e6, full_s=None if full is None else full / 1e6)

    def _segments(self) -> dict[bytes, bytes]:
        """Return the numbers of TCP: one line has the names, the next the values."""
        lines = [line.split() for line in self._text("net/snmp").splitlines() if line.startswith(b"Tcp:")]
        return dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
