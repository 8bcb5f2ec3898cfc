"""How fast the ranks are that were named, step after step, until they are well again.

A job whose work has been shared out around a slow rank hardly gets faster when that rank recovers: the others
are busy with its work. So the rank itself is looked at: what it needs for one operation, now and when it was
healthy. Only of planned jobs is it known how many operations a step has.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from holdfast.diagnose.profiles import Profile, is_typical
from holdfast.telemetry import Step, StepFlag

_RECENT = 10
"""Steps that a speed is told from."""
_WELL = 0.93
"""From this speed on a rank counts as healthy."""
_CHANGED = 0.1
"""A speed that has changed by less is the same as before: nobody plans anew for noise."""


class Speeds:
    """The speeds of some ranks, against what they were when they were healthy."""

    def __init__(self) -> None:
        self._healthy_s: dict[int, float] = {}
        """By rank, what an operation took."""
        self._told: dict[int, float] = {}

    @property
    def ranks(self) -> list[int]:
        """Those who are looked at."""
        return sorted(self._healthy_s)

    def follow(self, ranks: Sequence[int], healthy: Mapping[int, Profile]) -> None:
        """Look at ranks from now on; what they were before the trouble is what they are held against."""
        for rank in ranks:
            profile = healthy.get(rank)
            if profile is not None and profile.is_planned and profile.work > 0 and profile.own_s > 0:
                self._healthy_s.setdefault(rank, profile.own_s / profile.work)

    def forget(self) -> None:
        """Look at nobody any more."""
        self._healthy_s.clear()
        self._told.clear()

    def of(self, steps: Mapping[int, Sequence[Step]]) -> dict[int, float]:
        """Return the speeds of those who are slow, from the last steps of every rank."""
        for rank, healthy_s in self._healthy_s.items():
            recent = [step.own_s / step.work for step in steps.get(rank, ()) if _is_told(step)][-_RECENT:]
            if len(recent) == _RECENT:
                self._tell(rank, healthy_s / statistics.median(recent))
        return {rank: speed for rank, speed in self._told.items() if speed < 1.0}

    def _tell(self, rank: int, speed: float) -> None:
        speed = 1.0 if speed >= _WELL else round(speed, 3)
        before = self._told.get(rank)
        if before is None or abs(speed / before - 1) >= _CHANGED or (speed == 1.0 and before < _WELL):
            self._told[rank] = speed


def _is_told(step: Step) -> bool:
    return is_typical(step) and bool(step.flags & StepFlag.PLANNED) and step.work > 0 and step.own_s > 0
