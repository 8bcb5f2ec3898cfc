"""What each kind of action costs this job, in seconds during which nobody trains: measured, not assumed."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Literal

Deed = Literal["replan", "exchange", "restart"]
"""What is done: new shares, new places too, or the whole job again without somebody."""
_KEPT = 5
_LEAST_S = 0.05
"""Nothing is for free: what does not help must not be tried again and again because it costs so little."""


class Prices:
    """The last few measured prices of each deed, and what to believe before there is any."""

    def __init__(self, guess: dict[Deed, float]) -> None:
        """Begin with guesses: the time of a meeting, of a checkpoint and a start."""
        self._guess = dict(guess)
        self._seen: dict[Deed, deque[float]] = {}

    def expect(self, deed: Deed, seconds: float) -> None:
        """Take in what a deed is likely to cost, as far as none has been seen."""
        self._guess[deed] = seconds

    def note(self, deed: Deed, seconds: float) -> None:
        """Take in what a deed cost."""
        self._seen.setdefault(deed, deque(maxlen=_KEPT)).append(max(seconds, _LEAST_S))

    def of(self, deed: Deed) -> float | None:
        """Return what a deed is expected to cost; None: it cannot be done here, as nobody knows how."""
        seen = self._seen.get(deed)
        return statistics.median(seen) if seen else self._guess.get(deed)
