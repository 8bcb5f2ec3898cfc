"""A question to all ranks of the job, wherever they are, and how long to wait for the answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence

from holdfast.guard.batches import Batch
from holdfast.job.attendant import LOOK_EVERY_S
from holdfast.telemetry import Ask, Lines

LOOK_FOR_S = 1.5
"""For how long ranks look where they spend their time."""
_PATIENCE_S = 2 * LOOK_EVERY_S + 3.0
"""On top: batches come once a second."""


class Inquiry:
    """Asks once at a time."""

    def __init__(self, send: Callable[[Ask], None]) -> None:
        self._send = send
        self._asked: Ask | None = None
        self._asked_s = 0.0
        self._answers: dict[int, Lines] = {}

    def ask(
        self, ranks: Sequence[int], *, now_s: float, duration_s: float = LOOK_FOR_S, dumps: str | None = None
    ) -> None:
        """Ask ranks where they are, for so long."""
        self._asked = Ask(id=secrets.token_hex(8), ranks=list(ranks), duration_s=duration_s, dumps=dumps)
        self._asked_s = now_s
        self._answers = {}
        self._send(self._asked)

    def take(self, batches: Iterable[Batch]) -> None:
        """Take in answers."""
        for batch in batches:
            for lines in batch.answers:
                if self._asked is not None and lines.ask == self._asked.id:
                    self._answers[lines.rank] = lines

    def is_over(self, now_s: float) -> bool:
        """Say whether all have answered, or had the time to."""
        if self._asked is None or now_s - self._asked_s > self._asked.duration_s + _PATIENCE_S:
            return True
        return len(self._answers) == len(self._asked.ranks)

    @property
    def answers(self) -> dict[int, Lines]:
        """What was answered so far, by rank."""
        return self._answers
