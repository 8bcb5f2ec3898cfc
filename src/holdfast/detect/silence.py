"""A job that no longer does anything: noticed after a time that its own steps set.

An evaluation, a checkpoint or a long compilation is not silence: calls are made, or processors are used. What
only uses processors, and makes neither a step nor a call, is let be for longer, but not for ever.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import msgspec

LEAST_S = 10.0
"""Nothing is silent sooner than this."""
STEPS = 5.0
"""So many times the longest of the last steps (EROICA's rule has it of the mean one)."""
GAPS = 3.0
"""So many times the longest pause that ended by itself."""
_LEARNT = 2.0
"""So many times the limit is the most to be learnt from a pause that was told: it may be ordinary, and come
again; but a job that once stood still for a night must not be let be for days."""
BUSY = 6.0
"""So much longer where processors are used."""
_HISTORY = 200
"""Looks in which steps had ended, however many ranks told of them."""
_BUSY_SHARE = 0.3
"""Of a processor: less is what waiting costs."""


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """What shows that a rank is alive."""

    marks: tuple[int, ...]
    """Numbers of which one grows with each step and each call."""
    cpu_s: float


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing has happened for too long."""

    lasted_s: float
    limit_s: float


class SilenceDetector:
    """Looks at all ranks about once a second."""

    def __init__(self) -> None:
        self._durations_s: deque[float] = deque(maxlen=_HISTORY)
        self._newest_s = 0.0
        """The longest step since the last look."""
        self._learnt = 0
        """Steps so far; a short job may make all of them between two looks."""
        self._longest_gap_s = 0.0
        self._marks: dict[int, tuple[int, ...]] = {}
        self._cpu: tuple[float, dict[int, float]] | None = None
        self._since_s: float | None = None
        self._idle_s = 0.0
        self._last_s = 0.0
        self._told: Silence | None = None

    def learn(self, duration_s: float) -> None:
        """Take in how long a step took."""
        self._newest_s = max(self._newest_s, duration_s)
        self._learnt += duration_s > 0

    @property
    def limit_s(self) -> float | None:
        """How long silence may last; None before the first steps, which may take any time."""
        if self._learnt < 2 or not self._durations_s:
            return None
        return max(LEAST_S, STEPS * max(self._durations_s), GAPS * self._longest_gap_s)

    def see(self, now_s: float, ranks: Mapping[int, Sign]) -> Silence | None:
        """Take in one look at ranks, all or some; return the silence when it has lasted too long, once."""
        was_training = self.limit_s is not None
        if self._newest_s > 0:
            self._durations_s.append(self._newest_s)
            self._newest_s = 0.0
        has_moved = any(self._marks.get(rank) != sign.marks for rank, sign in ranks.items())
        # A rank that is not seen this time has neither moved nor gone: nodes tell when they can.
        self._marks |= {rank: sign.marks for rank, sign in ranks.items()}
        if has_moved or self._since_s is None:
            self._end_pause(now_s, was_training=was_training)
            return None
        passed_s, self._last_s = now_s - self._last_s, now_s
        # Time in which processors were used counts for less.
        self._idle_s += passed_s / (BUSY if self._is_busy(now_s, ranks) else 1.0)
        limit_s = self.limit_s
        if limit_s is None or self._told is not None or self._idle_s < limit_s:
            return None
        self._told = Silence(lasted_s=now_s - self._since_s, limit_s=limit_s)
        return self._told

    def _end_pause(self, now_s: float, *, was_training: bool) -> None:
        if was_training:  # Before, it was starting up: what it does then does not come again.
            most_s = math.inf if self._told is None else _LEARNT * self._told.limit_s
            self._longest_gap_s = max(self._longest_gap_s, min(self._idle_s, most_s))
        self._since_s = self._last_s = now_s
        self._idle_s = 0.0
        self._told = None
        self._cpu = None

    def _is_busy(self, now_s: float, ranks: Mapping[int, Sign]) -> bool:
        before = self._cpu
        self._cpu = (now_s, {rank: sign.cpu_s for rank, sign in ranks.items()})
        if before is None or now_s <= before[0]:
            return False
        used = (sign.cpu_s - before[1].get(rank, sign.cpu_s) for rank, sign in ranks.items())
        return max(used, default=0.0) / (now_s - before[0]) > _BUSY_SHARE
