"""A lower bound from a simpler problem: how many operations have started by when, never mind which.

Per stage and speed only counts are kept: at most as many operations at once as workers, at most as many
micro-batches in flight as all of them hold, as many backwards as forwards, and no more at a stage than the
one before has passed on. Each schedule gives such counts, so their best value bounds them all. All symmetry
between micro-batches and between workers is gone, which is why this is often proven within a second. Where it
proves too little, the workers of a stage can be counted one by one.
"""

from __future__ import annotations

import time
from itertools import pairwise

import msgspec
from ortools.sat.python import cp_model

from holdfast.plan.problem import Problem
from oracle.grid import Grid, latest_start, load_ticks, stage_ticks

Counts = list[cp_model.IntVar]
Term = int | cp_model.LinearExpr


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """No schedule on the grid has fewer ticks than ``least``."""

    least: int
    is_reached: bool
    """Counts with this value exist, so the relaxation can give no more."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Live workers of one stage that are equally fast and counted together."""

    stage: int
    pipeline: int
    """One of them."""
    size: int


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How long to look, and among which values."""

    seconds: float
    threads: int
    least: int = 0
    """Ticks that are known to be needed."""
    most: int | None = None
    """Ticks; None: any."""
    apart: tuple[int, ...] = ()
    """Stages whose workers are counted one by one: slower, and nearer to the truth."""


def tighten_ticks(problem: Problem, grid: Grid, effort: Effort, *, is_period: bool) -> int:
    """Return a bound of at least ``effort.least``, by counting workers one by one at more and more stages."""
    assert effort.most is not None
    until = time.monotonic() + effort.seconds
    by_load = sorted(range(problem.pp), key=lambda stage: -stage_ticks(problem, grid, stage))
    attempts = [(stage,) for stage in by_load] + [tuple(range(problem.pp))]
    least = effort.least
    for turn, apart in enumerate(attempts):
        seconds = (until - time.monotonic()) / (len(attempts) - turn)
        if least > effort.most or seconds <= 0:
            break
        closer = msgspec.structs.replace(effort, apart=apart, least=least, seconds=seconds)
        least = bound_ticks(problem, grid, closer, is_period=is_period).least
    return least


def bound_ticks(problem: Problem, grid: Grid, effort: Effort, *, is_period: bool) -> Bound:
    """Return the best bound found in time; ``most + 1`` if even the most allowed is too little."""
    until = time.monotonic() + effort.seconds
    groups = _groups(problem, effort.apart)
    low = max(effort.least, load_ticks(problem, grid, is_period=is_period))
    # The model grows with the largest value it can have, so small ones are tried first.
    high = low + low // 8 + sum(grid.least("F", stage) for stage in range(problem.pp))
    while effort.most is None or low <= effort.most:
        high = high if effort.most is None else min(high, effort.most)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.01, until - time.monotonic())
        solver.parameters.num_workers = effort.threads
        status = solver.solve(_Relaxation(problem, grid, groups, (low, high), is_period).model)
        if status != cp_model.INFEASIBLE:
            least = max(low, round(solver.best_objective_bound))
            return Bound(least=least, is_reached=status == cp_model.OPTIMAL)
        low, high = high + 1, high + max(1, high // 4)
    return Bound(least=low, is_reached=False)


class _Relaxation:
    """The model; ``started[kind, n][t]`` counts what group n has started up to tick t."""

    def __init__(
        self, problem: Problem, grid: Grid, groups: list[Group], values: tuple[int, int], is_period: bool
    ) -> None:
        self.model = cp_model.CpModel()
        self._problem, self._grid = problem, grid
        self._count = problem.dp * problem.microbatches
        self._horizon = values[1] + (latest_start(problem, grid, values[1]) if is_period else 0)
        self._groups = groups
        self._started: dict[tuple[str, int], Counts] = {
            (kind, index): self._make_counts() for index in range(len(self._groups)) for kind in grid.kinds
        }
        for index in range(len(self._groups)):
            self._add_group(index)
        for stage in range(problem.pp):
            self._add_stage(stage)
        self._add_value(values, is_period)

    def _make_counts(self) -> Counts:
        counts = [self.model.new_int_var(0, self._count, "") for _ in range(self._horizon + 1)]
        self._rise(counts)
        return counts

    def _rise(self, counts: Counts) -> None:
        for before, after in pairwise(counts):
            self.model.add(before <= after)

    def _at(self, kind: str, index: int, tick: int) -> Term:
        """How many a group has started up to a tick."""
        return self._started[kind, index][min(tick, self._horizon)] if tick >= 0 else 0

    def _done(self, kind: str, index: int, tick: int) -> Term:
        group = self._groups[index]
        return self._at(kind, index, tick - self._grid.ticks[kind, group.stage, group.pipeline])

    def _add_group(self, index: int) -> None:
        """What holds within one group, for each tick."""
        group, kinds, back = self._groups[index], self._grid.kinds, self._grid.kinds[1]
        cap = self._problem.cap(group.stage) * group.size
        away = self._away(group.stage) + self._grid.ticks["F", group.stage, group.pipeline]
        for tick in range(self._horizon + 1):
            busy = [self._at(kind, index, tick) - self._done(kind, index, tick) for kind in kinds]
            self._no_more(sum(busy), group.size)
            self._no_more(self._at(back, index, tick), self._at("F", index, tick - away))
            if back != self._grid.last:
                self._no_more(self._at("W", index, tick), self._done("I", index, tick))
            if cap < self._count:
                held = self._at("F", index, tick) - self._done(self._grid.last, index, tick)
                self._no_more(held, cap)
        for kind in kinds[1:]:
            self.model.add(self._at(kind, index, self._horizon) == self._at("F", index, self._horizon))

    def _add_stage(self, stage: int) -> None:
        """What a stage gets from its neighbours."""
        here, back, comm = self._of(stage), self._grid.kinds[1], self._grid.comm
        self.model.add(sum(self._at("F", index, self._horizon) for index in here) == self._count)
        if stage == 0:
            return
        before = self._of(stage - 1)
        for tick in range(self._horizon + 1):
            self._no_more(
                sum(self._at("F", index, tick) for index in here),
                sum(self._done("F", index, tick - comm) for index in before),
            )
            self._no_more(
                sum(self._at(back, index, tick) for index in before),
                sum(self._done(back, index, tick - comm) for index in here),
            )

    def _add_value(self, values: tuple[int, int], is_period: bool) -> None:
        value = self.model.new_int_var(*values, "value")
        for stage in range(self._problem.pp):
            begun, ended = self._make_flags(), self._make_flags()
            here = self._of(stage)
            for tick in range(self._horizon + 1):
                for index in here:
                    self._no_more(self._at("F", index, tick), self._count * begun[tick])
                done = sum(self._done(self._grid.last, index, tick) for index in here)
                self._no_more(self._count * ended[tick], done)
            self.model.add(ended[-1] == 1)
            if stage == 0:
                self.model.add(begun[0] == 1)
            first = sum(1 - flag for flag in begun) if is_period else 0
            self.model.add(value >= sum(1 - flag for flag in ended) - first)
        self.model.minimize(value)

    def _make_flags(self) -> Counts:
        flags = [self.model.new_bool_var("") for _ in range(self._horizon + 1)]
        self._rise(flags)
        return flags

    def _of(self, stage: int) -> list[int]:
        return [index for index, group in enumerate(self._groups) if group.stage == stage]

    def _away(self, stage: int) -> int:
        """The least time between the end of F and the start of its backward: the way down and up again."""
        grid, later = self._grid, range(stage + 1, self._problem.pp)
        turn = sum(grid.least("F", other) + grid.least(grid.kinds[1], other) for other in later)
        return turn + 2 * grid.comm * len(later)

    def _no_more(self, left: Term, right: Term) -> None:
        if isinstance(left, int) and isinstance(right, int):
            assert left <= right, (left, right)
        else:
            self.model.add(left <= right)


def _groups(problem: Problem, apart: tuple[int, ...]) -> list[Group]:
    groups = []
    for stage in range(problem.pp):
        live = problem.live(stage)
        speeds = [problem.speeds[pipeline][stage] for pipeline in live]
        if stage in apart:
            groups += [Group(stage=stage, pipeline=pipeline, size=1) for pipeline in live]
            continue
        for speed in sorted(dict.fromkeys(speeds)):
            pipeline = live[speeds.index(speed)]
            groups.append(Group(stage=stage, pipeline=pipeline, size=speeds.count(speed)))
    return groups
