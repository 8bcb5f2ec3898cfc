"""When the next checkpoint is due: every so many steps, or as often as failures make it worth while.

Young's rule: with w the time that a checkpoint costs and M the mean time between failures, least is lost if
one is written every sqrt(2 w M). For any w that is small against M this is what ``holdfast reliability ettr``
calls the best interval.
"""

from __future__ import annotations

import math
from collections import deque

_FIRST = 10
"""Steps before the first checkpoint where its cost is not known yet: it is measured by it."""
_LEAST_WRITES = 2.0
"""A checkpoint is not begun sooner than so many times as long as the last took to be written."""
_REMEMBERED = 20


class Cadence:
    """Decides for one run; times are of one clock, in seconds."""

    def __init__(self, every: int | None, *, mttf_s: float | None = None) -> None:
        """Take a number of steps, or None and the mean time between failures of the whole job."""
        self._every = every
        self._mttf_s = mttf_s
        self._cost_s: float | None = None
        self._write_s = 0.0
        self._ends_s: deque[float] = deque(maxlen=_REMEMBERED)

    def note_step(self, now_s: float) -> None:
        """Take in that a step has ended."""
        self._ends_s.append(now_s)

    def note_cost(self, seconds: float) -> None:
        """Take in how long training was held up for a checkpoint."""
        self._cost_s = seconds

    def note_written(self, seconds: float) -> None:
        """Take in how long it took until it was written."""
        self._write_s = seconds

    def due_after(self, version: int) -> int:
        """Return the version at which the next one is due."""
        if self._every is not None:
            return (version // self._every + 1) * self._every
        step_s = self._step_s()
        if self._mttf_s is None or self._cost_s is None or step_s is None:
            return version + _FIRST
        best_s = max(math.sqrt(2 * self._cost_s * self._mttf_s), _LEAST_WRITES * self._write_s)
        return version + max(1, round(best_s / step_s))

    def _step_s(self) -> float | None:
        if len(self._ends_s) < 2:
            return None
        return max(1e-6, (self._ends_s[-1] - self._ends_s[0]) / (len(self._ends_s) - 1))
