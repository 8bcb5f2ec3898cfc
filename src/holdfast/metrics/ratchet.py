"""Keeps counters from going down: what was once exposed is never taken back.

What incidents cost is corrected when they close, and steps are counted anew after a restart; whoever reads a
counter that went down would take that for a new process, and count everything a second time.
"""

from __future__ import annotations

from collections.abc import Hashable


class Ratchet:
    """The highest values of one run so far."""

    def __init__(self) -> None:
        self._highest: dict[Hashable, float] = {}
        self._step: int | None = None
        self._steps = 0

    def hold(self, what: Hashable, value: float) -> float:
        """Return the value, or the one before where that was higher."""
        self._highest[what] = max(value, self._highest.get(what, 0.0))
        return self._highest[what]

    def count_steps(self, step: int) -> int:
        """Return how many steps were seen, from the one that was seen first; going back counts for none."""
        if self._step is not None and step > self._step:
            self._steps += step - self._step
        if step >= 0 or self._step is not None:
            self._step = step
        return self._steps


class Ratchets:
    """Those of many runs; the runs that were asked for least lately are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Ratchet] = {}

    def of(self, run: str) -> Ratchet:
        """Return the run's own."""
        ratchet = self._kept.pop(run, None) or Ratchet()
        self._kept[run] = ratchet
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return ratchet
