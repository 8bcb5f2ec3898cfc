"""Notices that a job's steps take longer than they should, and that they no longer do: one step at a time.

Runs of similar steps come from ``runs``; whether a new one is worth telling is decided against the *healthy*
level as well as against the level that was told last, so that ramps and chains of small steps are found. The
healthy level is what was seen first, or what turned out to be faster since; a fault that was there from the
start is found when it goes.
"""

from __future__ import annotations

import math
from collections import Counter, deque

from holdfast.detect.noise import Noise
from holdfast.detect.runs import Run, Runs
from holdfast.detect.workload import Workload
from holdfast.findings import ChangePoint, Direction

SLOW = 1.10
"""A change is worth telling from this factor on."""
BACK = 1.08
"""Closer than this to the healthy level is healthy again."""
_SIGMAS, _SIGMAS_EARLY = 4.0, 6.0
"""How sure it has to be that a change is more than a small one; the second while the healthy level is not
known yet, since a job may have moods that have not been seen."""
_LEAST_STEPS, _MOST_STEPS = 3, 20
"""How long a change has to last. One or two steps may be an evaluation or a checkpoint."""
_RECENT = 10
_FIRST_WEIGHT = 10.0
"""Steps of a run that is taken for healthy."""
_KNOWN_WEIGHT = 50.0
"""Steps after which the healthy level is known; before, it yields to what follows. A run that would be called
slow in hindsight has to be as long: what is shorter is warm-up."""
_MOST_WEIGHT = 1000.0
"""The healthy level forgets what is longer ago."""
_NEAR = math.log(1.05)
"""A small change. Runs that are closer than this to the healthy level teach it."""
_CREEP = math.log(1.02)
"""Those that are further above it do not: a ramp must not take the level along."""
_YIELD = math.log(1.5)
"""A level that is not known yet yields to what follows a relief, if it is closer than this."""
_LEAST_SPREAD = 1e-6
_ROUND = 0.1
"""A run of three steps weighs a little less than 3, since each may have been an outlier."""


class StepDetector:
    """One job's step times, in the order of its steps; memory and time per step are bounded."""

    def __init__(self, *, slow: float = SLOW) -> None:
        self._slow = math.log(slow)
        self._noise = Noise()
        self._workload = Workload()
        self._first: list[tuple[int, float]] = []
        self._runs: Runs | None = None
        self._healthy: Run | None = None
        self._told: Run | None = None
        """The slow level that was told last, while there is one."""
        self._changed: Counter[Direction] = Counter()
        """For how many steps the job has been above, or below, the level that it is compared with."""
        self._last: deque[tuple[int, float]] = deque(maxlen=_MOST_STEPS)
        self._bursts = Bursts()
        self._is_first = True

    @property
    def healthy_s(self) -> float | None:
        """How long a step takes when all is well; None: not known yet."""
        return None if self._healthy is None else math.exp(self._healthy.mean)

    @property
    def slow_s(self) -> float | None:
        """How long a step takes now, while the job is slow."""
        return None if self._told is None else math.exp(self._told.mean)

    @property
    def recent_s(self) -> float | None:
        """How long the last few steps took, in the middle of them; None before there are any."""
        values = sorted(value for _, value in list(self._last)[-_RECENT:])
        return math.exp(values[len(values) // 2]) if values else None

    def begin_again(self) -> None:
        """Go on after a time in which a step was something else; what is healthy stays known."""
        self._is_first = True
        self._told = None
        self._changed.clear()
        self._last.clear()
        self._bursts.forget_row()
        if self._healthy is not None:
            self._runs = Runs(self._healthy.mean, self._noise.scale)

    def update(self, step: int, duration_s: float, work: float | None = None) -> list[ChangePoint]:
        """Take in a step that has ended; return what is now known to have changed."""
        if self._is_first:  # It compiles, allocates and connects.
            self._is_first = False
            return []
        value = math.log(self._workload.normalise(duration_s, work, learns=self._told is None))
        self._noise.add(value)
        changes = []
        for at, each in self._ready(step, value):
            changes += self._advance(at, each)
        return changes

    def _ready(self, step: int, value: float) -> list[tuple[int, float]]:
        """Return the values to take in: at first none, then all since the start, then one by one."""
        if self._runs is not None:
            return [(step, value)]
        self._first.append((step, value))
        if not self._noise.is_known:
            return []
        level = sorted(each for _, each in self._first)[len(self._first) // 2]
        self._runs = Runs(level, self._noise.scale)
        first, self._first = self._first, []
        return first

    def _advance(self, step: int, value: float) -> list[ChangePoint]:
        assert self._runs is not None
        self._runs.noise = self._noise.scale
        self._runs.update(value, at=step, memory=self._noise.memory)
        run = self._runs.best
        if self._healthy is None:
            if run.weight > _FIRST_WEIGHT - _ROUND:
                self._healthy = run
            return []
        self._healthy = healthy = self._taught(self._healthy, run, value)
        self._last.append((step, value))
        if self._told is None:
            self._bursts.see(value - healthy.mean > max(self._slow, 4 * healthy.spread))
            return self._judge_healthy(run, step, healthy)
        return self._judge_slow(run, step, healthy, self._told)

    def _taught(self, healthy: Run, run: Run, value: float) -> Run:
        """Return the healthy level, which learns from a step that is as it should be."""
        offset = value - healthy.mean
        is_usual = abs(offset) <= 4 * max(healthy.spread, self._noise.scale)
        above = run.mean - healthy.mean
        if self._told is not None or not is_usual or abs(above) > _NEAR:
            return healthy
        if above > _CREEP and healthy.weight >= _KNOWN_WEIGHT:
            return healthy
        weight = min(healthy.weight + 1, _MOST_WEIGHT)
        variance = healthy.spread**2 + (offset**2 - healthy.spread**2) / weight
        mean = healthy.mean + offset / weight
        return Run(start=healthy.start, weight=weight, mean=mean, spread=math.sqrt(max(0.0, variance)))

    # --- while all is well --------------------------------------------------------------------

    def _judge_healthy(self, run: Run, step: int, healthy: Run) -> list[ChangePoint]:
        if self._has_changed("slow", run, healthy):
            self._told = run
            self._bursts.forget_row()
            return [self._change((run.start, step), healthy, run)]
        if run.start == healthy.start:
            self._changed["relief"] = 0
            return []
        if healthy.weight < _KNOWN_WEIGHT:
            if run.weight > healthy.weight or self._is_below(run, healthy, _FIRST_WEIGHT):
                self._healthy = run
            return []
        # Faster than what was taken for healthy, which was a fault from the start on, if it is so for long.
        if self._has_changed("relief", run, healthy, least_weight=_MOST_STEPS):
            self._healthy = run
            return [
                self._change((healthy.start, step), run, healthy),
                self._change((run.start, step), healthy, run, is_slow=False),
            ]
        if self._is_below(run, healthy, _KNOWN_WEIGHT):
            self._healthy = run
        return []

    # --- while it is slow ---------------------------------------------------------------------

    def _judge_slow(self, run: Run, step: int, healthy: Run, told: Run) -> list[ChangePoint]:
        if run.start == told.start:
            self._told = run
            self._changed.clear()
            return []
        if self._has_changed("slow", run, told):
            self._told = run
            return [self._change((self._since(run, told), step), told, run)]
        is_known = healthy.weight >= _KNOWN_WEIGHT
        is_back = run.mean - healthy.mean < (math.log(BACK) if is_known else _YIELD)
        if self._has_changed("relief", run, told, least=_NEAR if is_back else self._slow):
            self._told = None if is_back else run
            if is_back and not is_known:
                self._healthy = run
            return [self._change((self._since(run, told), step), told, run, is_slow=not is_back)]
        if told.weight < min(run.weight, _MOST_STEPS):  # What was told first was the way to this level.
            self._told = run
        return []

    # --- comparisons --------------------------------------------------------------------------

    def _since(self, run: Run, told: Run) -> int:
        """Return where a change began; the run may be an older one than that told, which goes on after it."""
        if run.start > told.start:
            return run.start
        return self._last[-max(1, self._count_beyond(run, told))][0]

    def _has_changed(
        self,
        direction: Direction,
        run: Run,
        level: Run,
        *,
        least: float | None = None,
        least_weight: float = 0.0,
    ) -> bool:
        """Say whether the job has been above or below a level for long enough, and surely is."""
        apart = run.mean - level.mean if direction == "slow" else level.mean - run.mean
        # What may well be as much as is worth telling is told, if it surely is something.
        if apart + self._error(run, level) < (self._slow if least is None else least):
            self._changed[direction] = 0
            return False
        # A run may be younger than the change: a ramp is many runs. A step that is back where it was tells
        # nothing for it: two long steps of a checkpoint are not three.
        beyond = self._count_beyond(run, level)
        steps = max(self._changed[direction] + min(beyond, 1), round(run.weight), beyond)
        self._changed[direction] = steps
        least_steps = max(steps_needed(apart), self._bursts.least_steps if direction == "slow" else 0)
        is_long = steps >= least_steps and run.weight > least_weight - _ROUND
        is_early = self._told is None and level.weight < _KNOWN_WEIGHT
        if not is_long or self._sigmas(apart, run, level) < (_SIGMAS_EARLY if is_early else _SIGMAS):
            return False
        self._changed.clear()
        return True

    def _count_beyond(self, run: Run, level: Run) -> int:
        """Return how many of the last steps in a row were on the way from a level to a run, or there."""
        apart = run.mean - level.mean
        least = max(self._slow, abs(apart) / 3)
        count = 0
        for _, value in list(self._last)[: -_LEAST_STEPS - 1 : -1]:
            if math.copysign(1, apart) * (value - level.mean) < least:
                break
            count += 1
        return count

    def _is_below(self, run: Run, level: Run, least_weight: float) -> bool:
        if run.weight < least_weight - _ROUND:
            return False
        return (level.mean - run.mean) / self._error(run, level) >= _SIGMAS

    def _sigmas(self, apart: float, one: Run, other: Run) -> float:
        """Return by how many standard errors a change is more than what is not worth telling."""
        return (apart - min(_NEAR, self._slow / 2)) / self._error(one, other)

    def _error(self, one: Run, other: Run) -> float:
        """Return the standard error of the difference of two levels."""
        memory = self._noise.memory
        # The spread of a short run is small by chance, or it would be no run.
        spread = max(one.spread, other.spread, _LEAST_SPREAD)
        counts = 1 / max(one.weight, _ROUND) + 1 / max(other.weight, _ROUND)
        return spread * math.sqrt(counts * (1 + memory) / (1 - memory))

    def _change(self, at: tuple[int, int], before: Run, after: Run, *, is_slow: bool = True) -> ChangePoint:
        """Describe a change that began and was noticed at two steps."""
        sigmas = self._sigmas(abs(after.mean - before.mean), before, after)
        return ChangePoint(
            step=at[0],
            detected_step=at[1],
            before_s=math.exp(before.mean),
            after_s=math.exp(after.mean),
            direction="slow" if after.mean > before.mean else "relief",
            is_slow=is_slow,
            confidence=round(0.5 * (1 + math.erf(sigmas / math.sqrt(2))), 4),
        )


class Bursts:
    """How many long steps in a row a job has now and then: checkpoints, evaluations, a network's moods."""

    def __init__(self) -> None:
        self._row = 0
        self._ended: Counter[int] = Counter()
        """How often such a row ended by itself, by its length."""

    def see(self, is_long: bool) -> None:
        """Take in a step of a job that is not slow."""
        if is_long:
            self._row += 1
        elif self._row:
            self._ended[min(self._row, _MOST_STEPS)] += 1
            self._row = 0

    def forget_row(self) -> None:
        """Take in that the row that goes on is a slowdown."""
        self._row = 0

    @property
    def least_steps(self) -> int:
        """How many there must be to be more than that: two more than it has had twice."""
        usual = max((length for length, count in self._ended.items() if count > 1), default=0)
        return usual + 2


def steps_needed(apart: float) -> int:
    """Return how long a change has to last to be told: what is twice as strong, a quarter as long."""
    strength = math.expm1(min(max(apart, 0.0), 1.0)) ** 2
    return _MOST_STEPS if strength * _MOST_STEPS < 1 else max(_LEAST_STEPS, math.ceil(1 / strength))
