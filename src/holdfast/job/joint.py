"""What all workers do together between two steps: it is done for all of them or for none, whoever dies.

Nobody counts an act as done before all have its outcome in hand. So if one has when another dies, all can
follow; and if none has, all go on from where they were and do it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.commit import Agreement


@dataclass(frozen=True)
class Outcome:
    """What an act would bring: the version that this worker is at afterwards, and how it gets there."""

    version: int
    take: Callable[[], None]


class Joint:
    """How many acts this worker has done with the others, and the outcome of one that is not done yet."""

    def __init__(self) -> None:
        self.count = 0
        self.outcome: Outcome | None = None

    def take(self) -> None:
        """Count the act as done."""
        outcome, self.outcome = self.outcome, None
        assert outcome is not None
        outcome.take()
        self.count += 1

    def adopt(self, agreement: Agreement) -> None:
        """Follow those for whom the act is done; without any, its outcome is void."""
        if agreement.acts > self.count and self.outcome is not None:
            self.take()
        self.outcome = None
        self.count = max(self.count, agreement.acts)
