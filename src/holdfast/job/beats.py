"""Finds the cycle that the latest calls of loaders and optimizers repeat, and how a step ends in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

REPEATS = 3
"""A pattern that is seen so often in a row is a cycle."""


class Beat(NamedTuple):
    """How to tell the end of a step."""

    leader: int
    """The optimizer that ends it."""
    every: int = 1
    """It does so with each so manyth call."""
    loader: int = 0
    """A loader of the cycle; 0: none."""
    batches: int = 0
    """How many batches it gives in a step, at most."""
    known: frozenset[int] = frozenset()
    """Every symbol of a usual step; empty: no cycle was found."""

    def is_like(self, other: Beat) -> bool:
        """Say whether both mean the same step: a loader may be another one if it gives as many batches."""
        if (self.leader, self.every) != (other.leader, other.every):
            return False
        return not other.batches or self.batches == other.batches

    def without_batches(self) -> Beat:
        """Return the same with no loader to count on."""
        return self._replace(loader=0, batches=0)


def find_beat(calls: Sequence[int]) -> Beat | None:
    """Return how to tell steps in calls of which the last is an optimizer's; None: they repeat no pattern."""
    last = calls[-1]
    for length in range(1, len(calls) // REPEATS + 1):
        # Most lengths fail at the first glance, without a copy.
        if calls[-1 - length] == last and _is_repeated(calls, length) and _covers(calls, length):
            return _beat(calls[-length:])
    return None


def _is_repeated(calls: Sequence[int], length: int) -> bool:
    return calls[-length * REPEATS : -length] == calls[-length * (REPEATS - 1) :]


def _covers(calls: Sequence[int], length: int) -> bool:
    """Say whether the pattern has every optimizer that is still in use: an inner loop is not the cycle.

    One that it lacks is out of use when it has been silent for more than twice as long as ever before.
    """
    inside = set(calls[-length:])
    for symbol in sorted({call for call in calls if call > 0} - inside):
        places = [-1, *(place for place, call in enumerate(calls) if call == symbol)]
        longest = max(after - before for before, after in pairwise(places))
        if len(calls) - places[-1] <= 2 * longest:
            return False
    return True


def _beat(pattern: Sequence[int]) -> Beat | None:
    counts = Counter(pattern)
    updates = [symbol for symbol in counts if symbol > 0]
    least = min(counts[symbol] for symbol in updates)
    turned = _from_its_start(pattern)
    # Of those that are called least often, the one that comes last.
    leader = next(symbol for symbol in reversed(turned) if symbol > 0 and counts[symbol] == least)
    # With one optimizer each call is a step: a longer pattern only comes from short epochs or evaluations.
    every = least if len(updates) > 1 else 1
    steps = _steps(turned, leader, every)
    loader, known = _loader(steps, sorted(symbol for symbol in counts if symbol < 0))
    batches = max(step[loader] for step in steps) if loader else 0
    return Beat(leader, every, loader, batches, frozenset(updates) | known)


def _from_its_start(pattern: Sequence[int]) -> list[int]:
    """Return the pattern turned so that it begins with a batch after an update, whenever it was looked at."""
    starts = [at for at in range(len(pattern)) if pattern[at] < 0 < pattern[at - 1]] or range(len(pattern))
    return min([*pattern[at:], *pattern[:at]] for at in starts)


def _steps(turned: Sequence[int], leader: int, every: int) -> list[Counter[int]]:
    """Return how often each symbol comes in each step of a cycle."""
    steps, called = [Counter[int]()], 0
    for symbol in turned:
        steps[-1][symbol] += 1
        called += symbol == leader
        if symbol == leader and called % every == 0:
            steps.append(Counter())
    # What comes after the last end belongs to the first step of the next turn.
    steps[0].update(steps.pop())
    return steps


def _loader(steps: Sequence[Counter[int]], loaders: Sequence[int]) -> tuple[int, frozenset[int]]:
    """Return the loader to count on, and those that belong to usual steps: in as many of them as any."""
    if not loaders:
        return 0, frozenset()
    share = {loader: sum(loader in step for step in steps) for loader in loaders}
    usual = [loader for loader in loaders if share[loader] == max(share.values())]
    return min(usual, key=lambda loader: sum(step[loader] for step in steps)), frozenset(usual)
