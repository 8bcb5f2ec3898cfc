"""A clock that only moves forward, and what is to happen when it gets there.

The kernel of every simulation: a heap of (time, sequence, event). Two events of the same time happen in the
order in which they were scheduled, so a run is the same every time. It knows nothing of what it simulates.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Event:
    """Something that will happen once, unless it is cancelled."""

    __slots__ = ("_action", "at_s")

    def __init__(self, at_s: float, action: Callable[[], None]) -> None:
        self.at_s = at_s
        self._action: Callable[[], None] | None = action

    @property
    def is_pending(self) -> bool:
        """Whether it is still to happen."""
        return self._action is not None

    def cancel(self) -> None:
        """See to it that this does not happen; nothing changes if it already has."""
        self._action = None

    def happen(self) -> None:
        """Do what was to be done, and never again."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Kernel:
    """Calls functions at simulated times, in order."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._sequence = 0
        self._heap: list[tuple[float, int, Event]] = []

    @property
    def now_s(self) -> float:
        """Simulated seconds since the beginning."""
        return self._now_s

    def at(self, at_s: float, action: Callable[[], None]) -> Event:
        """Call ``action`` at a time that has not passed."""
        if not self._now_s <= at_s < math.inf:
            raise ValueError(f"an event at {at_s} s, expected a finite time from {self._now_s} s on")
        event = Event(at_s, action)
        heapq.heappush(self._heap, (at_s, self._sequence, event))
        self._sequence += 1
        return event

    def after(self, delay_s: float, action: Callable[[], None]) -> Event:
        """Call ``action`` when so many seconds have passed."""
        return self.at(self._now_s + delay_s, action)

    def step(self) -> bool:
        """Let the next event happen; return False if there is none."""
        self._drop_cancelled()
        if not self._heap:
            return False
        self._now_s, _, event = heapq.heappop(self._heap)
        event.happen()
        return True

    def run(self, until_s: float) -> None:
        """Let everything happen that is due before ``until_s``, and leave the clock there."""
        if not self._now_s <= until_s < math.inf:
            raise ValueError(f"a run until {until_s} s, expected a finite time from {self._now_s} s on")
        while self._next_s() < until_s:
            self.step()
        self._now_s = until_s

    def _next_s(self) -> float:
        self._drop_cancelled()
        return self._heap[0][0] if self._heap else math.inf

    def _drop_cancelled(self) -> None:
        while self._heap and not self._heap[0][2].is_pending:
            heapq.heappop(self._heap)
