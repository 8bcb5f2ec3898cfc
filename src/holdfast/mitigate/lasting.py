"""How much longer an incident will last, from how long such incidents lasted before."""

from __future__ import annotations

from bisect import bisect_right, insort

_BELIEF = 0.5
"""So many incidents' worth of belief in what is thought before anything was seen:"""
_AGAIN = 4.0
"""something goes on for so many times as long as it has lasted. What was published of slow workers and links
lasted from half a minute to half a day, about as often in each order of magnitude; what is a minute old then
lasts for another quarter of an hour on average. This is careful."""
_ABOUT = 0.8
"""What lasted for nearly as long as this one has is alike too: it says that such things end about now."""
_KEPT = 200


class Lasting:
    """Durations seen so far, by sort of trouble.

    The older an incident is, the longer it will last.
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
        alike = seen[bisect_right(seen, _ABOUT * age_s) :]
        left_s = sum(max(0.0, each - age_s) for each in alike)
        return (_BELIEF * _AGAIN * age_s + left_s) / (_BELIEF + len(alike))
