"""What a step is, in a job that does not say: the repeating cycle of loader and optimizer calls.

EROICA's rule made exact. The calls are symbols; a cycle is the shortest pattern that the latest calls repeat.
A step ends with the cycle's rarest optimizer, so several optimizers, accumulated gradients and batches of an
evaluation do not fool it; a step whose optimizer was not called, as after an overflow, ends where its loader
goes on. Before a cycle is known, a step ends with the optimizer that was called first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

REPEATS = 3
"""A pattern that is seen so often in a row is a cycle."""
MEMORY = 256
"""Calls that are remembered; a cycle has at most a third as many."""
_LOST = 200
"""Calls without the end of a step, after which the cycle is looked for anew (EROICA's K)."""


class Beat(NamedTuple):
    """How to tell the end of a step."""

    leader: int
    """The optimizer that ends it."""
    every: int = 1
    """It does so with each so manyth call."""
    loader: int = 0
    """A loader of the cycle; 0: none."""
    batches: int = 0
    """How many batches it gives in a step."""
    known: frozenset[int] = frozenset()
    """Every symbol of the cycle."""


class Cycle:
    """Takes in calls and says when a step has ended; optimizers are positive symbols, loaders negative."""

    def __init__(self) -> None:
        self.number = 0
        """One more whenever a step is taken to be something else than before."""
        self.is_foreign = False
        """Whether the step that goes on read from a loader that is not the cycle's."""
        self.is_skipped = False
        """Whether the step that ended last did so without its optimizer."""
        self._beat: Beat | None = None
        self._recent: list[int] = []
        self._look_at = 8
        self._since = 0
        self._called = 0
        self._batches = 0
        self._is_new_epoch = False

    def mark_epoch(self, symbol: int) -> None:
        """Take in that a loader begins anew: it may be a batch ahead."""
        if self._beat is not None and symbol == self._beat.loader:
            self._is_new_epoch = True

    def mark_batch(self, symbol: int) -> bool:
        """Take in a loader's batch; return whether a step was skipped that would have ended before it."""
        self._remember(symbol)
        beat = self._beat
        if beat is None or not beat.batches:
            return False
        if symbol != beat.loader:
            self.is_foreign = self.is_foreign or symbol not in beat.known
            return False
        self._batches += 1
        if self._batches <= beat.batches + self._is_new_epoch:
            return False
        self._end(is_skipped=True)
        self._batches = 1
        return True

    def mark_update(self, symbol: int) -> bool:
        """Take in an optimizer's call; return whether a step ends with it."""
        self._remember(symbol)
        beat = self._beat
        if beat is None or (beat.known and symbol not in beat.known):
            self._change(Beat(leader=symbol) if beat is None else Beat(leader=beat.leader))
            beat = self._beat
        if len(self._recent) >= self._look_at:
            self._look()
            beat = self._beat
        assert beat is not None
        if symbol != beat.leader:
            return False
        self._called += 1
        if self._called < beat.every:
            return False
        self._end(is_skipped=False)
        return True

    def forget(self, symbol: int) -> None:
        """Take in that an optimizer is gone."""
        if self._beat is not None and self._beat.leader == symbol:
            self._beat = None

    def _end(self, *, is_skipped: bool) -> None:
        self.is_skipped = is_skipped
        self._called = self._batches = self._since = 0
        self._is_new_epoch = False

    def _remember(self, symbol: int) -> None:
        self._since += 1
        self._recent.append(symbol)
        if self._since > _LOST and self._beat is not None and self._beat.known:
            self._change(Beat(leader=self._beat.leader))
        if len(self._recent) >= MEMORY:
            del self._recent[: MEMORY // 2]

    def _change(self, beat: Beat) -> None:
        """Go on with another idea of a step, and look for a better one soon."""
        self._beat = beat
        self.number += 1
        self._called = self._batches = self._since = 0
        self._recent = self._recent[-MEMORY // 2 :]
        self._look_at = min(len(self._recent) * 2, MEMORY - 1)

    def _look(self) -> None:
        """Look for a cycle; the next time after twice as many calls: it is too dear for every one."""
        self._look_at = min(self._look_at * 2, MEMORY - 1) if self._look_at < MEMORY - 1 else MEMORY // 2 + 1
        if self._beat is not None and self._beat.known:
            return
        found = find_beat(self._recent)
        if found is None or self._beat is None:
            return
        if (found.leader, found.every) != (self._beat.leader, self._beat.every):
            self.number += 1
        self._beat = found


def find_beat(calls: Sequence[int]) -> Beat | None:
    """Return how to tell steps in calls of which the last is an optimizer's; None: they repeat no pattern."""
    for length in range(1, len(calls) // REPEATS + 1):
        pattern = calls[-length:]
        turns = range(2, REPEATS + 1)
        is_repeated = all(calls[-length * turn : -length * (turn - 1)] == pattern for turn in turns)
        if is_repeated and _covers(calls, pattern):
            return _beat(pattern)
    return None


def _covers(calls: Sequence[int], pattern: Sequence[int]) -> bool:
    """Say whether no optimizer was called lately that the pattern lacks: an inner loop is not the cycle."""
    lately = calls[-len(calls) * 3 // 4 :]
    return {call for call in lately if call > 0} <= set(pattern)


def _beat(pattern: Sequence[int]) -> Beat | None:
    counts = Counter(pattern)
    updates = [symbol for symbol in counts if symbol > 0]
    if not updates:
        return None
    # Of those that are called least often, the one that comes last.
    least = min(counts[symbol] for symbol in updates)
    leader = next(symbol for symbol in reversed(pattern) if symbol > 0 and counts[symbol] == least)
    loaders = sorted((symbol for symbol in counts if symbol < 0), key=lambda symbol: counts[symbol])
    loader = loaders[0] if loaders else 0
    return Beat(
        leader=leader, every=least, loader=loader, batches=counts.get(loader, 0), known=frozenset(pattern)
    )
