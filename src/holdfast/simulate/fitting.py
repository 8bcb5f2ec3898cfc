"""A trace of some nodes as a life of N workers: which worker's place is empty when.

Nodes take the lowest free place, so pipelines fill one after the other; those that come at the same time do
so in an order that is drawn. A trace with as many nodes at its peak as there are workers is used as it is;
for any other a rule says what becomes of the difference.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

import msgspec

from holdfast.errors import InputError
from holdfast.simulate.traces import NodeChange, Trace

Rule = Literal["share", "clip"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Workers that left and workers that came, all at the same time."""

    at_s: float
    left: tuple[int, ...] = ()
    came: tuple[int, ...] = ()


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in terms of workers 0 to N - 1."""

    workers: int
    live: tuple[int, ...]
    """Who is there at the beginning."""
    changes: tuple[Change, ...]
    duration_s: float
    rule: str
    """How nodes became workers, in words."""

    @property
    def failures(self) -> int:
        """How many workers were lost, over all of it."""
        return sum(len(change.left) for change in self.changes)

    @property
    def mtbf_s(self) -> float | None:
        """Mean time between moments at which workers were lost, None if none was."""
        moments = sum(bool(change.left) for change in self.changes)
        return self.duration_s / moments if moments else None


def fit(trace: Trace, workers: int, rng: random.Random, rule: Rule = "share") -> Fitted:
    """Return the trace as one of so many workers.

    ``share`` keeps the share of the peak that is there: count x workers / peak, rounded, and rng draws which
    workers leave. ``clip`` lets the first nodes in and keeps the others waiting to replace them.
    """
    peak = _peak(trace)
    if peak == 0:
        raise InputError("the trace has no nodes at any time, expected one or more")
    if peak == workers:
        return _by_name(trace, workers, rng, f"{peak} nodes as {workers} workers, by name")
    if rule == "clip":
        words = f"the first {workers} of up to {peak} nodes, the others wait (clip)"
        return _by_name(trace, workers, rng, words)
    return _by_share(trace, workers, peak, rng)


def _peak(trace: Trace) -> int:
    count = peak = len(trace.nodes)
    for change in trace.changes:
        count += 1 if change.is_up else -1
        peak = max(peak, count)
    return peak


def _by_name(trace: Trace, workers: int, rng: random.Random, rule: str) -> Fitted:
    places = _Places(workers)
    for node in _shuffled(trace.nodes, rng):
        places.come(node)
    live = places.taken()
    changes = []
    for at_s, group in _moments(trace):
        before = dict(places.node_at)
        places.change(group, rng)
        changes.append(_difference(at_s, before, places.node_at))
    return _make(trace, workers, live, changes, rule)


def _by_share(trace: Trace, workers: int, peak: int, rng: random.Random) -> Fitted:
    count = len(trace.nodes)
    live = list(range(_share(count, workers, peak)))
    first = tuple(live)
    changes = []
    for at_s, group in _moments(trace):
        count += sum(1 if change.is_up else -1 for change in group)
        target = _share(count, workers, peak)
        left = sorted(rng.sample(live, max(0, len(live) - target)))
        live = [worker for worker in live if worker not in left]
        free = [worker for worker in range(workers) if worker not in live]
        came = free[: target - len(live)]
        live = sorted(live + came)
        changes.append(Change(at_s=at_s, left=tuple(left), came=tuple(came)))
    rule = f"{peak} nodes at most, each worth {workers / peak:g} of {workers} workers, rounded (share)"
    return _make(trace, workers, first, changes, rule)


class _Places:
    """Who sits where; nodes without a place wait in the order in which they came."""

    def __init__(self, workers: int) -> None:
        self.node_at: dict[int, str] = {}
        self._free = list(range(workers))
        self._waiting: OrderedDict[str, None] = OrderedDict()

    def taken(self) -> tuple[int, ...]:
        return tuple(sorted(self.node_at))

    def change(self, group: list[NodeChange], rng: random.Random) -> None:
        """Let go who leaves, then seat who comes; a node that does both at once was hardly there."""
        gone = [change.node for change in group if not change.is_up]
        come = [change.node for change in group if change.is_up]
        leaving, coming = set(gone), set(come)
        for node in gone:
            if node not in coming:
                self.leave(node)
        for node in _shuffled(come, rng):
            if node not in leaving:
                self.come(node)

    def come(self, node: str) -> None:
        self._waiting[node] = None
        self._seat()

    def leave(self, node: str) -> None:
        if node in self._waiting:
            del self._waiting[node]
            return
        place = next(place for place, sitting in self.node_at.items() if sitting == node)
        del self.node_at[place]
        self._free = sorted([*self._free, place])
        self._seat()

    def _seat(self) -> None:
        while self._free and self._waiting:
            self.node_at[self._free.pop(0)] = self._waiting.popitem(last=False)[0]


def _shuffled(nodes: Sequence[str], rng: random.Random) -> list[str]:
    return rng.sample(nodes, len(nodes))


def _moments(trace: Trace) -> list[tuple[float, list[NodeChange]]]:
    return [(at_s, list(group)) for at_s, group in groupby(trace.changes, key=lambda change: change.at_s)]


def _difference(at_s: float, before: dict[int, str], after: dict[int, str]) -> Change:
    """Return what changed; a place whose node was replaced has both lost one and got one."""
    places = sorted(before.keys() | after.keys())
    changed = [place for place in places if before.get(place) != after.get(place)]
    return Change(
        at_s=at_s,
        left=tuple(place for place in changed if place in before),
        came=tuple(place for place in changed if place in after),
    )


def _make(trace: Trace, workers: int, live: tuple[int, ...], changes: list[Change], rule: str) -> Fitted:
    return Fitted(
        workers=workers,
        live=live,
        changes=tuple(change for change in changes if change.left or change.came),
        duration_s=trace.duration_s,
        rule=rule,
    )


def _share(count: int, workers: int, peak: int) -> int:
    return (2 * count * workers + peak) // (2 * peak)  # Halves round up, in integers.
