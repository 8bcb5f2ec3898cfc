"""How much longer an incident will last, from how long such incidents lasted before."""

from __future__ import annotations

from bisect import bisect_right, insort

_BELIEF = 2.0
"""So many incidents' worth of belief that something goes on for as long again as it has lasted."""
_KEPT = 200


class Lasting:
    """Durations seen so far, by sort of trouble.

    Without any the outlook is that an incident lasts as long again as it has: with that, acting pays when it
    would have paid from the start, which is the rule of who rents skis and does not know for how long.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], list[float]] = {}

    def note(self, kinds: tuple[str, ...], seconds: float) -> None:
        """Take in how long an incident lasted."""
        seen = self._seen.setdefault(kinds, [])
        insort(seen, seconds)
        if len(seen) > _KEPT:  # Every other one stands for two.
            del seen[::2]

    def outlook(self, kinds: tuple[str, ...], age_s: float) -> float:
        """Return how much longer an incident of this age is expected to last, in seconds."""
        seen = self._seen.get(kinds, [])
        longer = seen[bisect_right(seen, age_s) :]
        return (_BELIEF * age_s + sum(each - age_s for each in longer)) / (_BELIEF + len(longer))
