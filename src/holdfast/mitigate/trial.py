"""What was done has to show what it is worth, in the steps after it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.mitigate.ledger import Level
from holdfast.mitigate.look import Culprits, Decision, Look

_VERIFY_STEPS = 10
_ENOUGH = 0.25
"""Of the gain that was promised; less is no help."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of something that was done."""

    level: Level
    promised: float
    gained: float
    """By how much steps got shorter, in healthy steps."""
    is_enough: bool


class Trial:
    """Of one deed: give it the looks after it; ``before`` is what steps took, over healthy ones."""

    def __init__(self, decision: Decision, culprits: Culprits, *, before: float) -> None:
        self.decision = decision
        self.culprits = culprits
        self.before = before
        self._looks: list[Look] | None = None
        """Since it was done; None: until now there was only one that had begun before."""

    def take(self, look: Look) -> Verdict | None:
        """Take in some steps, and return what the deed is worth once there are enough."""
        if self._looks is None:  # Part of this look was before it.
            self._looks = []
            return None
        if look.is_unclear:  # What is seen now may be somebody else's fault.
            return None
        if look.steps:
            self._looks.append(look)
        if sum(each.steps for each in self._looks) < _VERIFY_STEPS:
            return None
        promised, gained = self.decision.gain, self.before - _better_half(self._looks)
        is_enough = gained >= _ENOUGH * promised or self.decision.deed == "restart"
        return Verdict(level=self.decision.level, promised=promised, gained=gained, is_enough=is_enough)


def _better_half(looks: Sequence[Look]) -> float:
    """Return step time over the healthy one: in one of the halves something else may have begun."""
    steps = sum(look.steps for look in looks)
    half = next(
        number
        for number in range(1, len(looks) + 1)
        if 2 * sum(look.steps for look in looks[:number]) >= steps
    )
    return min(_slowdown(part) for part in (looks[:half], looks[half:]) if part)


def _slowdown(looks: Sequence[Look]) -> float:
    pace = Pace()
    for look in looks:
        pace.add(look)
    return pace.slowdown


class Pace:
    """How fast the job has been since something changed last."""

    def __init__(self) -> None:
        self._healthy_s = 0.0
        self._seconds = 0.0

    def add(self, look: Look) -> None:
        self._seconds += look.seconds
        self._healthy_s += look.steps * look.healthy_s

    @property
    def slowdown(self) -> float:
        return self._seconds / self._healthy_s if self._healthy_s > 0 else 1.0
