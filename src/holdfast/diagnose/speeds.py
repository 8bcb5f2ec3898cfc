"""How fast the ranks are that were named, step after step, until they are well again.

A job whose work has been shared out around a slow rank hardly gets faster when that rank recovers: the others
are busy with its work. So the rank itself is looked at: what it needs for one operation, now and when it was
healthy. Only of planned jobs is it known how many operations a step has, and only pipelines measure them. In
other jobs a part of a step's own time does not depend on that number, and would make a rank with little to do
look slow; it is told from the steps before and after the work was shared out. What all others feel as well,
as of a machine that they share, is not the rank's own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.diagnose.profiles import Profile, is_typical
from holdfast.telemetry import Step, StepFlag

_RECENT = 10
"""Steps that a speed is told from."""
_WELL = 0.93
"""From this speed on a rank counts as healthy."""
_CHANGED = 0.1
"""A speed that has changed by less is the same as before: nobody plans anew for noise."""
_SAME_WORK = 0.05
_OTHER_WORK = 0.2
"""From less of a difference nothing can be told: a few percent of noise would be taken for half of a step."""
_ENOUGH_OTHERS = 2
_MOST_FIXED = 0.7
"""Of a step's own time: what is left has to tell."""


class _Needs(NamedTuple):
    """What a rank needs for a step."""

    own_s: float
    operations_s: float
    """0: not known."""
    work: float

    def has_work_of(self, other: _Needs) -> bool:
        return abs(self.work - other.work) < _SAME_WORK * other.work

    def without(self, weather: float) -> _Needs:
        """Return what it would need if nothing held up everybody."""
        return self._replace(own_s=self.own_s / weather, operations_s=self.operations_s / weather)

    def slowness(self, healthy: _Needs, *, fixed_s: float = 0.0) -> float:
        """Return how many times as long as another time it takes for an operation."""
        if self.operations_s > 0 and healthy.operations_s > 0:
            mine_s, its_s = self.operations_s, healthy.operations_s
        else:
            mine_s, its_s = self.own_s - fixed_s, healthy.own_s - fixed_s
        return (mine_s / self.work) / (its_s / healthy.work)


class _Rank:
    """One who is looked at: what it needed when it was healthy, and what a step takes it whatever it does."""

    def __init__(self, healthy: _Needs) -> None:
        self.told: float | None = None
        self._healthy = healthy
        self._slow: _Needs | None = None
        """Of a step, slow and with as much to do as ever."""
        self._fixed_s: float | None = None
        """Part of a step's own time that does not depend on how many operations it has."""

    def speed(self, needs: _Needs) -> float:
        """Return how fast it is, from what it needs for a step now."""
        if needs.has_work_of(self._healthy):
            self._slow = needs
        elif self._fixed_s is None and self._slow is not None:
            self._fixed_s = _find_fixed(self._slow, needs)
        fixed_s = min(self._fixed_s or 0.0, _MOST_FIXED * min(needs.own_s, self._healthy.own_s))
        return 1 / needs.slowness(self._healthy, fixed_s=fixed_s)


def _find_fixed(before: _Needs, after: _Needs) -> float:
    """Tell it from two steps of a slow rank, where their numbers of operations differ enough."""
    if abs(before.work - after.work) < _OTHER_WORK * before.work:
        return 0.0
    slope = (before.own_s - after.own_s) / (before.work - after.work)
    return max(0.0, before.own_s - before.work * slope)


class Speeds:
    """The speeds of some ranks, against what they were when they were healthy."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._others: dict[int, Profile] = {}
        """What those who are not looked at were when all was well."""
        self.weather = 1.0
        """How much longer they take for an operation by now."""

    @property
    def ranks(self) -> list[int]:
        """Those who are looked at."""
        return sorted(self._ranks)

    def follow(self, ranks: Sequence[int], healthy: Mapping[int, Profile]) -> None:
        """Look at ranks from now on; what they were before the trouble is what they are held against."""
        known = {rank: each for rank, each in healthy.items() if _is_known(each)}
        for rank in ranks:
            if rank in known:
                self._ranks.setdefault(rank, _Rank(_needs_of(known[rank])))
        self._others = {rank: each for rank, each in known.items() if rank not in self._ranks}

    def forget(self) -> None:
        """Look at nobody any more."""
        self._ranks.clear()
        self._others = {}
        self.weather = 1.0

    def of(self, steps: Mapping[int, Sequence[Step]]) -> dict[int, float]:
        """Return the speeds of those who are slow, from the last steps of every rank."""
        self.weather = self._weather(steps)
        for number, rank in self._ranks.items():
            recent = _recent(steps.get(number, ()))
            if recent is not None:
                _tell(rank, rank.speed(recent.without(self.weather)))
        known = {number: rank.told for number, rank in self._ranks.items()}
        return {number: speed for number, speed in known.items() if speed is not None and speed < 1.0}

    def _weather(self, steps: Mapping[int, Sequence[Step]]) -> float:
        found = []
        for number, profile in self._others.items():
            recent, healthy = _recent(steps.get(number, ())), _needs_of(profile)
            # Where only whole steps are measured, those tell nothing that have more to do than before.
            if recent is not None and (recent.operations_s > 0 or recent.has_work_of(healthy)):
                found.append(recent.slowness(healthy))
        return statistics.median(found) if len(found) >= _ENOUGH_OTHERS else 1.0


def _is_known(profile: Profile) -> bool:
    return profile.is_planned and profile.work > 0 and profile.own_s > 0


def _needs_of(profile: Profile) -> _Needs:
    return _Needs(own_s=profile.own_s, operations_s=profile.operations_s, work=profile.work)


def _recent(steps: Sequence[Step]) -> _Needs | None:
    """Return what a rank needed for its last steps; None: they are too few, or not alike.

    With some of before and some of after a change of plan nothing can be told.
    """
    last = [step for step in steps if _is_told(step)][-_RECENT:]
    if len(last) < _RECENT or len({step.work for step in last}) > 1:
        return None
    return _Needs(
        own_s=statistics.median(step.own_s for step in last),
        operations_s=statistics.median(step.operations_s for step in last),
        work=last[0].work,
    )


def _tell(rank: _Rank, speed: float) -> None:
    speed = 1.0 if speed >= _WELL else round(speed, 3)
    before = rank.told
    if before is None or abs(speed / before - 1) >= _CHANGED or (speed == 1.0 and before < _WELL):
        rank.told = speed


def _is_told(step: Step) -> bool:
    return is_typical(step) and bool(step.flags & StepFlag.PLANNED) and step.work > 0 and step.own_s > 0
