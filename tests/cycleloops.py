"""A training loop as the cycle of its calls sees it, for tests of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.job.cycle import Cycle

TRAIN, EVAL, OTHER = -1, -2, -3
MODEL, CRITIC = 1, 2
WARM = 12
"""Updates after which a cycle of a few calls is surely known."""


class Loop:
    """A training loop as the cycle sees it: a tape of what it said at each call."""

    def __init__(self) -> None:
        self.cycle = Cycle()
        self.ends: list[str] = []

    def fetch(self, loader: int = TRAIN) -> None:
        """Ask a loader for a batch that it has."""
        if self.cycle.mark_batch(loader):
            self._end("skipped")

    def update(self, optimizer: int = MODEL) -> None:
        """Call an optimizer."""
        if self.cycle.mark_update(optimizer):
            self._end("evaluated" if self.cycle.is_foreign else "usual")

    def exhaust(self, loader: int = TRAIN) -> None:
        """Ask a loader for a batch that it does not have."""
        self.fetch(loader)
        self.cycle.mark_exhausted(loader)

    def evaluate(self, batches: int) -> None:
        """Read all of another loader."""
        self.cycle.mark_epoch(EVAL)
        for _ in range(batches):
            self.fetch(EVAL)
        self.exhaust(EVAL)

    def _end(self, kind: str) -> None:
        self.ends.append(kind)
        self.cycle.is_foreign = False


def warm(loop: Loop, body: Callable[[], None], turns: int = WARM) -> int:
    """Run a loop's body until the cycle is known; return its number."""
    loop.cycle.mark_epoch(TRAIN)
    for _ in range(turns):
        body()
    return loop.cycle.number


def a_step(loop: Loop, batches: int = 1, updates: Sequence[int] = (MODEL,)) -> Callable[[], None]:
    """Return the body of a loop: so many batches, then these updates."""

    def body() -> None:
        for _ in range(batches):
            loop.fetch()
        for optimizer in updates:
            loop.update(optimizer)

    return body
