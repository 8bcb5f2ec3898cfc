"""What the server counts of itself since it was started."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Literal, get_args

import msgspec

Counted = Literal["shipments", "events", "duplicates", "refused", "rejected"]

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds; one more bucket holds what took longer."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counters at one moment."""

    shipments: int = 0
    """Taken for good."""
    events: int = 0
    """Events and summary rows that were new."""
    duplicates: int = 0
    """Those that were there already."""
    refused: int = 0
    """Lines that are no events."""
    rejected: int = 0
    """Whole shipments that were not taken: no token, a wrong one, too big, not readable, no room."""
    waiting: int = 0
    """Shipments that are taken in but not stored yet."""
    take_buckets: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)
    """How many takes lasted up to each bound and longer than the one before."""
    take_s: float = 0.0
    """What all takes lasted together."""


class ServerCounters:
    """Counts from any thread; nothing ever goes down but ``waiting``, which is how things are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Counted, int] = dict.fromkeys(get_args(Counted), 0)
        self._waiting = 0
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self._take_s = 0.0

    def add(self, what: Counted, amount: int = 1) -> None:
        """Count some more of it."""
        with self._lock:
            self._counts[what] += amount

    def set_waiting(self, shipments: int) -> None:
        """Say how many shipments wait to be stored now."""
        self._waiting = shipments

    def observe_take(self, lasted_s: float) -> None:
        """Say how long it took to store what was sent."""
        with self._lock:
            self._buckets[bisect_left(BUCKETS_S, lasted_s)] += 1
            self._take_s += lasted_s

    def read(self) -> Counts:
        """Return all of it as it is now."""
        with self._lock:
            return Counts(
                **self._counts,
                waiting=self._waiting,
                take_buckets=tuple(self._buckets),
                take_s=self._take_s,
            )
