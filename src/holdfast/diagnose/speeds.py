"""How fast the ranks are that were named, step after step, until they are well again.

A job whose work has been shared out around a slow rank hardly gets faster when that rank recovers: the others
are busy with its work. So the rank itself is looked at: what it needs for one operation, now and when it was
healthy. Only of planned jobs is it known how many operations a step has. A part of a step does not depend on
that number, and would make a rank with little to do look slow; it is told from the steps before and after the
work was shared out. What all others feel as well, as of a machine that they share, is not the rank's own.
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
_SAME_WORK = 0.05
_ENOUGH_OTHERS = 2
_MOST_FIXED = 0.7
"""Of a step's own time: what is left has to tell."""


class _Rank:
    """One who is looked at: what it needed when it was healthy, and what a step takes it whatever it does."""

    def __init__(self, own_s: float, work: float) -> None:
        self.own_s = own_s
        self.work = work
        self.told: float | None = None
        self._slow: tuple[float, float] | None = None
        """Own time and operations of a step, slow and with as much to do as ever."""
        self._fixed_s: float | None = None
        """Part of a step's own time that does not depend on how many operations it has."""

    def speed(self, own_s: float, work: float) -> float:
        """Return how fast it is, from a step's own time and operations."""
        if abs(work - self.work) < _SAME_WORK * self.work:
            self._slow = (own_s, work)
        elif self._fixed_s is None and self._slow is not None:
            self._fixed_s = self._find_fixed(self._slow, own_s, work)
        fixed_s = min(self._fixed_s or 0.0, _MOST_FIXED * min(own_s, self.own_s))
        return ((self.own_s - fixed_s) / self.work) / ((own_s - fixed_s) / work)

    def _find_fixed(self, before: tuple[float, float], own_s: float, work: float) -> float:
        """Tell it from two steps of a slow rank with different numbers of operations."""
        slope = (before[0] - own_s) / (before[1] - work)
        return max(0.0, before[0] - before[1] * slope)


class Speeds:
    """The speeds of some ranks, against what they were when they were healthy."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._others: dict[int, Profile] = {}
        """What those who are not looked at were when all was well."""

    @property
    def ranks(self) -> list[int]:
        """Those who are looked at."""
        return sorted(self._ranks)

    def follow(self, ranks: Sequence[int], healthy: Mapping[int, Profile]) -> None:
        """Look at ranks from now on; what they were before the trouble is what they are held against."""
        known = {rank: each for rank, each in healthy.items() if _is_known(each)}
        for rank in ranks:
            if rank in known:
                self._ranks.setdefault(rank, _Rank(known[rank].own_s, known[rank].work))
        self._others = {rank: each for rank, each in known.items() if rank not in self._ranks}

    def forget(self) -> None:
        """Look at nobody any more."""
        self._ranks.clear()
        self._others = {}

    def of(self, steps: Mapping[int, Sequence[Step]]) -> dict[int, float]:
        """Return the speeds of those who are slow, from the last steps of every rank."""
        weather = self._weather(steps)
        for number, rank in self._ranks.items():
            recent = _recent(steps.get(number, ()))
            if recent is not None:
                own_s, work = recent
                _tell(rank, rank.speed(own_s / weather, work))
        known = {number: rank.told for number, rank in self._ranks.items()}
        return {number: speed for number, speed in known.items() if speed is not None and speed < 1.0}

    def _weather(self, steps: Mapping[int, Sequence[Step]]) -> float:
        """Return how much longer the others take than when all was well, for as much work."""
        found = []
        for number, healthy in self._others.items():
            recent = _recent(steps.get(number, ()))
            if recent is not None and abs(recent[1] - healthy.work) < _SAME_WORK * healthy.work:
                found.append(recent[0] / healthy.own_s)
        return statistics.median(found) if len(found) >= _ENOUGH_OTHERS else 1.0


def _is_known(profile: Profile) -> bool:
    return profile.is_planned and profile.work > 0 and profile.own_s > 0


def _recent(steps: Sequence[Step]) -> tuple[float, int] | None:
    """Return own time and operations of a rank's last steps; None: too few, or not alike.

    With some of before and some of after a change of plan nothing can be told.
    """
    last = [step for step in steps if _is_told(step)][-_RECENT:]
    if len(last) < _RECENT or len({step.work for step in last}) > 1:
        return None
    return statistics.median(step.own_s for step in last), last[0].work


def _tell(rank: _Rank, speed: float) -> None:
    speed = 1.0 if speed >= _WELL else round(speed, 3)
    before = rank.told
    if before is None or abs(speed / before - 1) >= _CHANGED or (speed == 1.0 and before < _WELL):
        rank.told = speed


def _is_told(step: Step) -> bool:
    return is_typical(step) and bool(step.flags & StepFlag.PLANNED) and step.work > 0 and step.own_s > 0
