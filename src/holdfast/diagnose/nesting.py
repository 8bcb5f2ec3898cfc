"""Operations within operations: what each does itself, as stretches of time between those that it calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.observe.kineto import Floats, Ints


class Stretches(NamedTuple):
    """Pieces of events, as columns."""

    owner: Ints
    """Which event each is a piece of."""
    start: Floats
    end: Floats


def own_stretches(start: Floats, end: Floats, thread: Ints) -> Stretches:
    """Return when each event ran and none of its own thread within it did.

    On a device's stream nothing is within anything, and every event is one stretch.
    """
    order = np.lexsort((-end, start, thread))
    owner: list[int] = []
    begins: list[float] = []
    ends: list[float] = []
    open_events: list[int] = []
    since, here = 0.0, -1

    def close(until: float) -> None:
        """Note what the innermost open event did since it was last looked at."""
        if until > since:
            owner.append(open_events[-1])
            begins.append(since)
            ends.append(until)

    threads, starts, stops = thread.tolist(), start.tolist(), end.tolist()
    for event in order.tolist():
        begun = starts[event]
        while open_events and (threads[event] != here or stops[open_events[-1]] <= begun):
            over = stops[open_events[-1]]
            close(over)
            since = max(since, over)
            open_events.pop()
        if open_events:
            close(begun)
        open_events.append(event)
        since, here = begun, threads[event]
    while open_events:
        over = stops[open_events[-1]]
        close(over)
        since = max(since, over)
        open_events.pop()
    return Stretches(np.array(owner, np.int64), np.array(begins), np.array(ends))
