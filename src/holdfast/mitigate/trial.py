"""What was done has to show what it is worth, in the steps after it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import sqrt

import msgspec

from holdfast.mitigate.ledger import Level
from holdfast.mitigate.look import Culprits, Decision, Look

_LEAST_STEPS, _MOST_STEPS = 10, 40
"""How long a deed is on trial; the second where steps differ so much that little can be told from a few."""
_ENOUGH = 0.25
"""Of the gain that was promised; less is no help."""
_SURE = 3.0
"""Standard errors by which a deed has to be worth less than that before it is taken back: a machine that is
held up is so for many steps in a row, which makes the error look smaller than it is."""


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
        steps = sum(each.steps for each in self._looks)
        if steps < _LEAST_STEPS:
            return None
        half = _better_half(self._looks)
        promised, gained = self.decision.gain, self.before - _slowdown(half)
        missing = _ENOUGH * promised - gained
        is_enough = missing <= 0 or self.decision.deed == "restart"
        if not is_enough and missing < _SURE * _error(self._looks) and steps < _MOST_STEPS:
            return None
        return Verdict(level=self.decision.level, promised=promised, gained=gained, is_enough=is_enough)


def _better_half(looks: Sequence[Look]) -> Sequence[Look]:
    """Return the half with the shorter steps: in the other one something else may have begun."""
    steps = sum(look.steps for look in looks)
    half = next(
        number
        for number in range(1, len(looks) + 1)
        if 2 * sum(look.steps for look in looks[:number]) >= steps
    )
    return min((part for part in (looks[:half], looks[half:]) if part), key=_slowdown)


def _error(looks: Sequence[Look]) -> float:
    """Return how far from the truth the mean of half of them may be, by how much all of them differ."""
    each = [look.seconds / (look.steps * look.healthy_s) for look in looks]
    return statistics.stdev(each) / sqrt(len(each) / 2) if len(each) > 1 else 0.0


def _slowdown(looks: Sequence[Look]) -> float:
    """Return step time over the healthy one."""
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
