"""How often senders are asked to come, so that a thousand of them are no more work than a hundred."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_MOST_PER_S = 100.0
"""Shipments of all senders together; each costs about 2 ms, however little is in it."""
_LEAST_S, _MOST_S = 1.0, 10.0
_FORGET_S = 30.0
_LOOK_EVERY_S = 5.0


class _Sender(NamedTuple):
    run: str
    node: int


class Tempo:
    """Counts who sends; called from one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_s: dict[_Sender, float] = {}
        self._looked_s = clock()

    def hear(self, run: str, node: int) -> float:
        """Take in that somebody sent something; return how long it should wait before the next time."""
        now_s = self._clock()
        self._heard_s[_Sender(run, node)] = now_s
        if now_s - self._looked_s > _LOOK_EVERY_S:
            self._looked_s = now_s
            self._heard_s = {who: at_s for who, at_s in self._heard_s.items() if now_s - at_s < _FORGET_S}
        return min(_MOST_S, max(_LEAST_S, len(self._heard_s) / _MOST_PER_S))
