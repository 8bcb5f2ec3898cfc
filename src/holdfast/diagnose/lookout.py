"""Keeps an eye on a job: notices that it got slow, waits until enough is known, names who did it.

A fold over step records; what the hosts and links had to say meanwhile is asked for when it is time.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from holdfast.detect.jobsteps import JobStep, JobSteps
from holdfast.detect.lasting import LASTING_S, Lasting
from holdfast.detect.steps import StepDetector
from holdfast.diagnose.profiles import Profile, profiles_of
from holdfast.findings import ChangePoint
from holdfast.telemetry import Step

HISTORY = 256
"""Steps per rank that are remembered."""
LARGE, HISTORY_LARGE = 1000, 48
"""In a job of more ranks than this it is fewer: memory, and the time to go through it, stay bounded."""
HEALTHY_STEPS = 100
"""Of them, those before a slowdown that are taken for healthy."""
ENOUGH_STEPS = 8
ENOUGH_S = LASTING_S
"""A slowdown is looked into when it has lasted so many steps, and so long: hosts are asked once a second."""
SETTLED_STEPS = 80
TOO_LONG_S = 20.0
"""Where steps are long, fewer will do."""
_RECENT = 20
MOST_LOOKS = 3
"""Each at twice as much as the one before; then what is known is told, however little."""
_LATER, _LATER_LARGE = 2, 5
"""How often the time is doubled until the next look where nobody in particular was named."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A slowdown that goes on."""

    since_step: int
    since_s: float
    """On the clock of the steps."""
    healthy: Mapping[int, Profile]
    healthy_since_s: float
    healthy_steps: Mapping[int, Sequence[Step]]
    """By rank."""
    is_told: bool = False
    is_named: bool = False
    is_vague: bool = False
    """Whether nobody in particular was: then it is looked into anew, as if it had begun where the last look
    ended. Who becomes slow while the whole host is changes nothing about the job's steps, or little.
    """
    looks: int = 0
    """How often it was looked into, and did not show enough."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a healthy step is, to be known again when a job is as it was."""

    detector: StepDetector
    healthy: Mapping[int, Profile]


class Lookout:
    """Watches one job through the records of its ranks."""

    def __init__(self) -> None:
        self._jobs = JobSteps()
        self._detector = StepDetector()
        self._lasting = Lasting()
        self._cycle = 0
        self._attempt = 0
        self._steps: dict[int, deque[Step]] = {}
        self._ends: deque[tuple[int, float]] = deque(maxlen=HISTORY)
        self._last_step = 0
        self._seen = 0
        self._is_settled = False
        self._healthy_from = 0
        self._healthy_before: Mapping[int, Profile] = {}
        self.trouble: Trouble | None = None

    @property
    def cycle(self) -> int:
        """What a step is now; changes when it is something else."""
        return self._cycle

    @property
    def last_step(self) -> int:
        """The last step that all ranks have finished."""
        return self._last_step

    @property
    def last_end(self) -> tuple[int, float] | None:
        """The last step that all ranks have finished, and when that was."""
        return self._ends[-1] if self._ends else None

    @property
    def healthy_s(self) -> float | None:
        """How long a step takes when all is well."""
        return self._detector.healthy_s

    def remember(self) -> Memory:
        """Return what a healthy step is, before the job is arranged in another way."""
        healthy = self.trouble.healthy if self.trouble is not None else self._healthy_before
        return Memory(detector=self._detector, healthy=healthy)

    def recall(self, memory: Memory) -> None:
        """Go on with what was known, since the job is as it was: what came between was another one."""
        self._detector = memory.detector
        self._detector.begin_again()
        self._healthy_before = memory.healthy
        self._lasting = Lasting()
        self._healthy_from = self._last_step
        self.trouble = None

    def take(self, steps: Sequence[Step]) -> list[ChangePoint]:
        """Take in what ranks have finished, each rank's steps in order; return what changed for the job."""
        changes = []
        for each in self._jobs.take(steps):
            if (self._jobs.attempt, self._jobs.cycle) != (self._attempt, self._cycle):
                self._restart()
            # One by one: a second may have more short steps than are remembered.
            for part in each.parts:
                self._remember(part)
            self._ends.append((each.step, each.ended_s))
            self._last_step = each.step
            changes += self._judge(each)
        return changes

    def _remember(self, step: Step) -> None:
        mine = self._steps.get(step.rank)
        if mine is None:
            if len(self._steps) == LARGE:
                self._steps = {rank: deque(old, maxlen=HISTORY_LARGE) for rank, old in self._steps.items()}
            room = HISTORY if len(self._steps) < LARGE else HISTORY_LARGE
            mine = self._steps[step.rank] = deque(maxlen=room)
        mine.append(step)

    def recent_step_s(self) -> float | None:
        """Return how long a step takes now; None before there are a few."""
        ended = [ended_s for _, ended_s in self._ends][-_RECENT:]
        gaps = [after - before for before, after in pairwise(ended)]
        return statistics.median(gaps) if gaps else None

    def is_ripe(self) -> bool:
        """Say whether it is time to name somebody."""
        trouble = self.trouble
        if trouble is None or not trouble.is_told or not self._ends:
            return False
        if trouble.is_named and not trouble.is_vague:
            return False
        times = 1 << trouble.looks
        lasted_s = self._ends[-1][1] - trouble.since_s
        lasted = self._last_step - trouble.since_step + 1
        is_long = lasted >= times * ENOUGH_STEPS and lasted_s >= times * ENOUGH_S
        return is_long or lasted_s >= times * TOO_LONG_S

    def profiles(self) -> Mapping[int, Profile]:
        """Return what the steps since the trouble began, or was looked into, were made of."""
        assert self.trouble is not None
        return profiles_of(self._steps, since=self.trouble.since_step, until=self._last_step + 1)

    def steps_of(self, *, since: int, until: int | None = None) -> dict[int, list[Step]]:
        """Return the steps of every rank from one number on until before another."""
        last = self._last_step + 1 if until is None else until
        return {
            rank: [step for step in mine if since <= step.step < last and step.duration_s > 0]
            for rank, mine in self._steps.items()
        }

    def settled(self) -> tuple[Mapping[int, Profile], Mapping[int, Profile]] | None:
        """Return, once, what steps were made of in two parts of the time that a job takes to settle."""
        if self._is_settled or self.trouble is not None or self._seen < SETTLED_STEPS:
            return None
        self._is_settled = True
        half = self._last_step - SETTLED_STEPS // 2
        first = half - SETTLED_STEPS // 4  # What comes earlier is warm-up.
        before = profiles_of(self._steps, since=first, until=half)
        return before, profiles_of(self._steps, since=half, until=self._last_step + 1)

    def look_again(self) -> bool:
        """Say whether there is another look to come, at more, since what was seen does not tell enough."""
        if self.trouble is None or self.trouble.looks + 1 >= MOST_LOOKS:
            return False
        self.trouble = msgspec.structs.replace(self.trouble, looks=self.trouble.looks + 1)
        return True

    def close_case(self) -> None:
        """Note that whoever could be named has been."""
        if self.trouble is not None:
            self.trouble = msgspec.structs.replace(self.trouble, is_named=True, is_vague=False)

    def look_later(self) -> None:
        """Note that nobody in particular could be named, so that what comes is looked into as well."""
        if self.trouble is not None and self._ends:
            step, ended_s = self._ends[-1]
            self.trouble = msgspec.structs.replace(
                self.trouble,
                since_step=step + 1,
                since_s=ended_s,
                is_named=True,
                is_vague=True,
                looks=_LATER if len(self._steps) <= LARGE else _LATER_LARGE,
            )

    # --- changes ------------------------------------------------------------------------------

    def _judge(self, each: JobStep) -> list[ChangePoint]:
        if not each.is_typical:
            return []
        self._seen += 1
        found = self._detector.update(each.step, each.duration_s, each.work)
        # What was healthy is noted at once, before it is forgotten; it is told when it has lasted.
        for change in found:
            self._follow(change)
        since_s = self._ended_s(found[0].step - 1) if found else each.ended_s
        changes = self._lasting.take(found, since_s=since_s, now_s=each.ended_s, share=self._lost_share())
        if changes is None:  # The job had only been fast for a moment: that is not what it is held against.
            self._detector = StepDetector()
            self.trouble = None
            return []
        return self._as_told(changes)

    def _lost_share(self) -> float:
        """Return what part of the time is lost now: by the slow level, and by the last steps as well."""
        healthy_s, levels = self._detector.healthy_s, (self._detector.slow_s, self._detector.recent_s)
        known = [level for level in levels if level is not None]
        return 1 - healthy_s / min(known) if healthy_s is not None and len(known) == len(levels) else 0.0

    def _as_told(self, changes: list[ChangePoint]) -> list[ChangePoint]:
        """Return changes as they are told: with the level that a slowdown has come to."""
        slow_s = self._detector.slow_s
        if not changes or not changes[-1].is_slow or slow_s is None:
            return changes
        if self.trouble is not None:
            self.trouble = msgspec.structs.replace(self.trouble, is_told=True)
        return [*changes[:-1], msgspec.structs.replace(changes[-1], after_s=slow_s)]

    def _follow(self, change: ChangePoint) -> None:
        if not change.is_slow:
            self._relieve(change.step)
        elif change.direction == "slow":
            self._begin(change)

    def _relieve(self, step: int) -> None:
        """Close the case; steps before this one are not healthy."""
        if self.trouble is not None:
            self._healthy_before = self.trouble.healthy
        self._healthy_from = step
        self.trouble = None

    def _begin(self, change: ChangePoint) -> None:
        """Open a case, or open one again where it got slower still: what was healthy stays what it was."""
        before = self.trouble
        if before is None:
            first = max(self._healthy_from, change.step - HEALTHY_STEPS)
            healthy: Mapping[int, Profile] = profiles_of(self._steps, since=first, until=change.step)
            if change.step - first < ENOUGH_STEPS and self._healthy_before:
                healthy = self._healthy_before  # What came between two faults was too short to tell.
            since_s = self._ended_s(first)
            steps: Mapping[int, Sequence[Step]] = self.steps_of(since=first, until=change.step)
        else:
            healthy, since_s, steps = before.healthy, before.healthy_since_s, before.healthy_steps
        self.trouble = Trouble(
            since_step=change.step,
            since_s=self._ended_s(change.step - 1),
            healthy=healthy,
            healthy_since_s=since_s,
            healthy_steps=steps,
        )

    def _ended_s(self, step: int) -> float:
        """Return when a step had ended, or the first that is remembered after it."""
        return next((ended_s for number, ended_s in self._ends if number >= step), self._ends[-1][1])

    def _restart(self) -> None:
        """Begin anew: another attempt, or a step is something else now."""
        self._attempt, self._cycle = self._jobs.attempt, self._jobs.cycle
        self._detector = StepDetector()
        self._lasting = Lasting()
        self._ends.clear()
        self._seen = 0
        self._is_settled = False
        self._healthy_from = 0
        self._healthy_before = {}
        self.trouble = None
        self._steps = {}
