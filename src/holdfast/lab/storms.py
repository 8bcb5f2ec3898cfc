"""Storms in a worker: real garbage for the collector, real copies in memory, for about so many seconds."""

from __future__ import annotations

import gc
import time
from typing import Any

_FIRST_GUESS_PER_S = 1_000_000.0
"""Cyclic objects made and collected per second, before the first storm has been timed."""


class GarbageStorm:
    """Makes cyclic garbage and collects it in one pause; learns from each storm how much garbage to make."""

    def __init__(self) -> None:
        self._objects_per_s = _FIRST_GUESS_PER_S
        self._is_calibrated = False

    def blow(self, duration_s: float) -> None:
        """Spend about this long on garbage."""
        if not self._is_calibrated:
            self._collect(20_000)
            self._is_calibrated = True
        self._collect(int(duration_s * self._objects_per_s))

    def _collect(self, count: int) -> None:
        started_s = time.perf_counter()
        # Collections while the garbage is being made would each see a part of it; we want one long pause.
        # Only the youngest generation: the garbage is there, while all objects of torch are not.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            _make_cycles(count)
            gc.collect(0)
        finally:
            if was_enabled:
                gc.enable()
        if count:
            self._objects_per_s = count / max(time.perf_counter() - started_s, 1e-6)


def _make_cycles(count: int) -> None:
    first: list[Any] = []
    last = first
    for _ in range(count):
        following = [last]
        last = following
    first.append(last)


class CopyStorm:
    """Copies a buffer larger than the caches back and forth."""

    def __init__(self, size_bytes: int = 8 << 20) -> None:
        self._size_bytes = size_bytes
        self._buffers: tuple[Any, Any] | None = None

    def blow(self, duration_s: float) -> None:
        """Copy for this long."""
        until_s = time.perf_counter() + duration_s
        if self._buffers is None:
            import torch  # The script has imported it by now; the lab must not do it first.

            self._buffers = (
                torch.zeros(self._size_bytes, dtype=torch.uint8),
                torch.ones(self._size_bytes, dtype=torch.uint8),
            )
        source, target = self._buffers
        while time.perf_counter() < until_s:
            target.copy_(source)
