"""What the training thread spends its time on, summed up until a step ends: no torch, no lock.

Times are nanoseconds of the monotonic clock. A call within a call counts once, for the outer one; calls of
other threads are no waiting of the training thread and count for nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.job.ring import CALLS, CHANNEL, CHANNELS_PER_STEP, SINCE

_clock = time.monotonic_ns


class Tally:
    """The sums of the step that goes on."""

    def __init__(self, words: memoryview) -> None:
        self.errors = 0
        """Of ours, which nobody was told of."""
        self.work = 0
        self.flags = 0
        self.data_ns = self.gc_ns = self.save_ns = self.wait_ns = 0
        self.thread = threading.get_ident()
        self._words = words
        self._calls = 0
        self._is_in_call = False
        self._uses: dict[int, list[int]] = {}
        """By channel: nanoseconds, bytes, calls."""

    def time(self, channel: int, moved: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that communicates, and count what it took."""
        if self._is_in_call or threading.get_ident() != self.thread:
            return function(*args, **kwargs)
        words = self._words
        self._is_in_call = True
        self._calls += 1
        words[CALLS] = self._calls
        words[CHANNEL] = channel
        words[SINCE] = began_ns = _clock()
        try:
            return function(*args, **kwargs)
        finally:
            self._is_in_call = False
            words[SINCE] = 0
            self.add(channel, _clock() - began_ns, moved)

    def add(self, channel: int, waited_ns: int, moved: int = 0, calls: int = 1) -> None:
        """Count time that was spent waiting."""
        self.wait_ns += waited_ns
        use = self._uses.get(channel)
        if use is None:
            use = self._uses[channel] = [0, 0, 0]
        use[0] += waited_ns
        use[1] += moved
        use[2] += calls

    def stop(self) -> None:
        """Count nothing from now on."""
        self.thread = -1

    @property
    def calls(self) -> int:
        """Calls of communication so far."""
        return self._calls

    def begin(self) -> tuple[int, int, int]:
        """Remember where a pause began, so that waiting and collecting within it are not counted twice."""
        return _clock(), self.wait_ns, self.gc_ns

    def lasted(self, began: tuple[int, int, int]) -> int:
        """Return how long a pause took, without what was waiting or garbage collection."""
        return max(0, _clock() - began[0] - (self.wait_ns - began[1]) - (self.gc_ns - began[2]))

    def take(self, cpu_ns: int, cycle: int) -> tuple[tuple[int, ...], list[int]]:
        """Return the parts and channels of the step that ends, as the ring has them, and begin the next."""
        uses = self._uses
        moved = sum(use[1] for use in uses.values())
        calls = sum(use[2] for use in uses.values())
        parts = (self.wait_ns, self.data_ns, self.gc_ns, self.save_ns, cpu_ns)
        counts = (moved, calls, self.work, self.flags, cycle)
        channels = _channels(uses)
        self.wait_ns = self.data_ns = self.gc_ns = self.save_ns = self.work = self.flags = 0
        if uses:
            self._uses = {}
        return parts + counts, channels


REST = 2**32
"""The number of the channel that stands for all that a record had no room for."""


def _channels(uses: dict[int, list[int]]) -> list[int]:
    """Return the channels that were waited for longest, and the rest as one."""
    chosen = uses.items()
    if len(uses) > CHANNELS_PER_STEP:
        ranked = sorted(uses.items(), key=lambda item: -item[1][0])
        rest = [sum(use[field] for _, use in ranked[CHANNELS_PER_STEP - 1 :]) for field in range(3)]
        chosen = [*ranked[: CHANNELS_PER_STEP - 1], (REST, rest)]  # type: ignore[assignment]
    words = [word for number, use in chosen for word in (number, *use)]
    words += [0] * (4 * CHANNELS_PER_STEP - len(words))
    return words
