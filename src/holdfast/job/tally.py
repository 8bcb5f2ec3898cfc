"""What the training thread spends its time on, summed up until a step ends: no torch, no lock.

Times are nanoseconds of the monotonic clock. A call within a call counts once, for the outer one, and time
that has a name is never part of another name's; calls of other threads are no waiting of the training thread
and count for nothing.
"""

from __future__ import annotations

import threading
import time

from holdfast.job.ring import CHANNELS_PER_STEP

MOST_ERRORS = 1000
"""Of our own, after which nothing is observed any more."""
REST = 2**32
"""The number of the channel that stands for all that a record had no room for."""


class Tally:
    """The sums of the step that goes on."""

    clock = staticmethod(time.monotonic_ns)

    def __init__(self, words: memoryview) -> None:
        self.errors = 0
        """Of ours, which nobody was told of."""
        self.thread = threading.get_ident()
        """The one that trains; no other is listened to."""
        self.is_in_call = False
        self.work = self.flags = 0
        self.data_ns = self.gc_ns = self.save_ns = self.wait_ns = self.operations_ns = 0
        self.words = words
        """The ring's, whose header says what this process is in the middle of."""
        self.calls = 0
        """Of communication, so far."""
        self.named_ns = 0
        """All time so far that was counted under some name."""
        self.uses: dict[int, list[int]] = {}
        """By channel: nanoseconds, bytes, calls."""

    # --- communication (what a call adds while it goes on, ``timed`` writes here itself) --------

    def add(self, channel: int, waited_ns: int, moved: int = 0, calls: int = 1) -> None:
        """Count time that was spent waiting."""
        self.wait_ns += waited_ns
        self.named_ns += waited_ns
        use = self.uses.get(channel)
        if use is None:
            use = self.uses[channel] = [0, 0, 0]
        use[0] += waited_ns
        use[1] += moved
        use[2] += calls

    # --- pauses -------------------------------------------------------------------------------

    def begin(self) -> tuple[int, int]:
        """Remember where a pause began, and what had a name by then."""
        return self.clock(), self.named_ns

    def lasted(self, began: tuple[int, int]) -> int:
        """Return how long a pause took, without what in it has a name of its own; it has one now."""
        lasted_ns = max(0, self.clock() - began[0] - (self.named_ns - began[1]))
        self.named_ns += lasted_ns
        return lasted_ns

    # --- operations ---------------------------------------------------------------------------

    def begin_operation(self) -> tuple[int, int]:
        """Remember where an operation of a plan began, and what had been waited by then."""
        return self.clock(), self.wait_ns

    def end_operation(self, began: tuple[int, int]) -> None:
        """Count an operation, without what was waited in it; all else in it keeps its name."""
        self.operations_ns += max(0, self.clock() - began[0] - (self.wait_ns - began[1]))

    # --- steps --------------------------------------------------------------------------------

    def take(self, cpu_ns: int, cycle: int) -> tuple[tuple[int, ...], list[int]]:
        """Return the parts and channels of the step that ends, as the ring has them, and begin the next."""
        uses, self.uses = self.uses, {}
        moved = sum(use[1] for use in uses.values())
        calls = sum(use[2] for use in uses.values())
        parts = (self.wait_ns, self.data_ns, self.gc_ns, self.save_ns, cpu_ns, self.operations_ns)
        counts = (moved, calls, self.work, self.flags, cycle)
        self.wait_ns = self.data_ns = self.gc_ns = self.save_ns = self.operations_ns = 0
        self.work = self.flags = 0
        self.is_in_call = False  # An interrupt may have come between a call and our note of its end.
        return parts + counts, _channels(uses)

    def stop(self) -> None:
        """Count nothing from now on."""
        self.thread = -1


def _channels(uses: dict[int, list[int]]) -> list[int]:
    """Return the channels that were waited for longest, and the rest as one."""
    chosen = list(uses.items())
    if len(chosen) > CHANNELS_PER_STEP:
        chosen.sort(key=lambda item: -item[1][0])
        rest = [use for _, use in chosen[CHANNELS_PER_STEP - 1 :]]
        chosen[CHANNELS_PER_STEP - 1 :] = [(REST, [sum(field) for field in zip(*rest, strict=True)])]
    words = [word for number, use in chosen for word in (number, *use)]
    return words + [0] * (4 * CHANNELS_PER_STEP - len(words))
