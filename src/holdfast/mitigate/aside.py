"""Links that are out of the way: for how long they are taken to be slow, since nobody can tell."""

from __future__ import annotations

from holdfast.mitigate.condition import SlowLink

_TIMES = 8.0
"""So many times as long as it was seen to be slow a link is taken to be. By the belief of ``lasting``, that
things go on for four times as long as they have lasted, about one in thirteen goes on longer than that. Who
goes back too soon has it all once more, and knows that it has been slow for all of that time."""


class Aside:
    """Links that were moved to where they carry nothing, so that nobody can tell how they are."""

    def __init__(self) -> None:
        self._links: tuple[SlowLink, ...] = ()
        self._until_s = 0.0
        self._since_s: dict[tuple[int, int], float] = {}
        """When each was seen to be slow first,"""
        self._used_s: dict[tuple[int, int], float] = {}
        """and since when it was in use again."""

    def put(self, links: tuple[SlowLink, ...], *, since_s: float, now_s: float) -> None:
        """Take links to be slow that were seen to be since then."""
        began_s = min(self._began_s((link.first, link.second), since_s) for link in links)
        self._links = tuple(sorted({*self.links(now_s), *links}))
        self._until_s = max(self._until_s, began_s + _TIMES * (now_s - began_s))

    def take_back(self, now_s: float) -> None:
        """Take note that they are in use again."""
        self._used_s |= {(link.first, link.second): now_s for link in self._links}
        self._links, self._until_s = (), 0.0

    def links(self, now_s: float) -> tuple[SlowLink, ...]:
        """Return those that are taken to be slow."""
        return self._links if now_s < self._until_s else ()

    def _began_s(self, pair: tuple[int, int], since_s: float) -> float:
        """Return since when a link is slow: all the time, if it is so again as soon as it is used."""
        first_s, used_s = self._since_s.get(pair), self._used_s.get(pair)
        if first_s is None or used_s is None or since_s - used_s > used_s - first_s:
            first_s = since_s
        self._since_s[pair] = first_s
        return first_s
