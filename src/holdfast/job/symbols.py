"""Gives things numbers for as long as they live; what takes the place of a dead one gets its number."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

_MOST_FREE = 64


class Symbols:
    """Numbers from ``first`` on in its direction: 1, 2, … or -1, -2, …; things are told apart by identity."""

    def __init__(self, first: int, on_gone: Callable[[int], None] | None = None) -> None:
        self._step = first
        self._given = 0
        self._on_gone = on_gone
        self._known: dict[int, tuple[int, object]] = {}
        """Number and reference, by the identity of the thing."""
        self._free: dict[int, list[int]] = {}

    def of(self, thing: Any, place: int | None = None) -> int:
        """Return the number of a thing: if it is new, that of a dead one in the same place, if any."""
        known = self._known.get(id(thing))
        return known[0] if known is not None else self._learn(thing, place)

    def _learn(self, thing: Any, place: int | None) -> int:
        key, free = id(thing), self._free.get(place) if place is not None else None
        number = free[-1] if free else self._step + self._given
        # Before anything is changed: there are things that cannot be referred to weakly.
        reference = weakref.ref(thing, lambda _: self._forget(key, number, place))
        if free:
            free.pop()
        else:
            self._given += self._step
        self._known[key] = (number, reference)
        return number

    def _forget(self, key: int, number: int, place: int | None) -> None:
        self._known.pop(key, None)
        if len(self._free) > _MOST_FREE:
            self._free.clear()
        if place is not None:
            self._free.setdefault(place, []).append(number)
        if self._on_gone is not None:
            self._on_gone(number)
