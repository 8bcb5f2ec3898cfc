"""Links that are out of the way: for how long they are taken to be slow, since nobody can tell."""

from __future__ import annotations

from collections import Counter

from holdfast.mitigate.condition import SlowLink

_ASIDE = 10.0
"""So many times what a slow link has cost until it was out of the way must pass before it is used again.
If it is still slow that costs about as much once more; then it is left alone for twice as long."""


class Aside:
    """Links that were moved to where they carry nothing, so that nobody can tell how they are.

    They are taken to be slow for a while: who goes back to the old places too soon has it all once more.
    """

    def __init__(self) -> None:
        self._links: tuple[SlowLink, ...] = ()
        self._until_s = 0.0
        self._times: Counter[tuple[int, int]] = Counter()

    def put(self, links: tuple[SlowLink, ...], now_s: float, lost_s: float) -> None:
        """Take links to be slow from now on, since they have cost so much."""
        self._links = tuple(sorted({*self.links(now_s), *links}))
        self._times.update((link.first, link.second) for link in links)
        again = max(self._times[link.first, link.second] for link in links) - 1
        self._until_s = max(self._until_s, now_s + _ASIDE * max(0.0, lost_s) * 2.0**again)

    def take_back(self) -> None:
        """Take note that they are in use again."""
        self._links, self._until_s = (), 0.0

    def links(self, now_s: float) -> tuple[SlowLink, ...]:
        """Return those that are taken to be slow."""
        return self._links if now_s < self._until_s else ()
