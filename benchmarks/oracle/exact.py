"""The planning problem itself for the solver: who does what when, on a grid of ticks.

Every micro-batch chooses a worker at each stage and does its forward and backward there; workers do one thing
at a time; a worker holds at most so many micro-batches. Symmetry is broken where it keeps an optimum: since
all transfers take equally long, micro-batches with the same choices can be renamed, and so can equally fast
workers of a stage. Micro-batches that have no choice at all run in the order of their numbers everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
from ortools.sat.python import cp_model

from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Problem
from holdfast.plan.timing import Timed
from oracle.grid import Grid, latest_start
from oracle.naming import Routes, alike, chains_of, choices_of, twins_of

Key = tuple[str, int, int]
"""Kind, micro-batch and stage."""
Slot = tuple[int, int]
"""The pipeline of a worker, and the tick at which it starts."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the solver came to."""

    schedule: Schedule | None
    least: int
    """No schedule on the grid has fewer ticks."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the solver may look for, and for how long."""

    low: int
    high: int
    """Ticks that the objective lies between."""
    seconds: float
    threads: int


class Exact:
    """The model of one problem; solve it once."""

    def __init__(self, problem: Problem, grid: Grid, routes: Routes, *, is_period: bool) -> None:
        self.model = cp_model.CpModel()
        self._problem, self._grid, self._is_period = problem, grid, is_period
        self._count = problem.dp * problem.microbatches
        self._choices = choices_of(problem, routes)
        self._starts: dict[tuple[str, int, int], cp_model.IntVar] = {}
        self._takes: dict[tuple[int, int, int], cp_model.IntVar] = {}

    def solve(self, limits: Limits, hint: Timed | None = None) -> Found:
        """Return the best schedule found in time."""
        self._build(limits)
        if hint is not None:
            self._add_hint(hint)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.01, limits.seconds)
        solver.parameters.num_workers = limits.threads
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return Found(schedule=None, least=limits.high + 1)
        assert status != cp_model.MODEL_INVALID, self.model.validate()
        is_found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        least = max(limits.low, round(solver.best_objective_bound))
        return Found(schedule=self._read(solver) if is_found else None, least=least)

    # --- the model ----------------------------------------------------------------------------

    def _build(self, limits: Limits) -> None:
        horizon = limits.high
        if self._is_period:
            horizon += latest_start(self._problem, self._grid, limits.high)
        for index, stage in self._choices:
            for pipeline in self._choices[index, stage]:
                self._takes[index, stage, pipeline] = self.model.new_bool_var("")
            self.model.add_exactly_one(self._taken_by(index, stage).values())
            for kind in self._grid.kinds:
                self._starts[kind, index, stage] = self.model.new_int_var(0, horizon, "")
        for index in range(self._count):
            self._add_path(index)
        for stage in range(self._problem.pp):
            for pipeline in self._problem.live(stage):
                self._add_worker(stage, pipeline, horizon)
            self._rename_workers(stage)
        self._rename_microbatches()
        self._add_value(limits)

    def _taken_by(self, index: int, stage: int) -> dict[int, cp_model.IntVar]:
        return {pipeline: self._takes[index, stage, pipeline] for pipeline in self._choices[index, stage]}

    def _end(self, kind: str, index: int, stage: int) -> cp_model.LinearExpr:
        lasts = {
            pipeline: self._grid.ticks[kind, stage, pipeline] for pipeline in self._choices[index, stage]
        }
        start, least = self._starts[kind, index, stage], min(lasts.values())
        more = [(lasts[pipeline] - least) * flag for pipeline, flag in self._taken_by(index, stage).items()]
        return start + least if max(lasts.values()) == least else start + least + sum(more)

    def _add_path(self, index: int) -> None:
        """A micro-batch goes down the stages and comes back."""
        back, comm, final = self._grid.kinds[1], self._grid.comm, self._problem.pp - 1
        for stage in range(self._problem.pp):
            if stage > 0:
                self._follow(("F", index, stage - 1), ("F", index, stage), comm)
                self._follow((back, index, stage), (back, index, stage - 1), comm)
            if back != self._grid.last:
                self._follow(("I", index, stage), ("W", index, stage), 0)
        self._follow(("F", index, final), (back, index, final), 0)

    def _follow(self, before: Key, after: Key, wait: int) -> None:
        self.model.add(self._starts[after] >= self._end(*before) + wait)

    def _add_worker(self, stage: int, pipeline: int, horizon: int) -> None:
        """A worker does one thing at a time and holds no more than its memory allows."""
        mine = [index for index in range(self._count) if pipeline in self._choices[index, stage]]
        work, lives = [], []
        freeing = self._grid.last
        for index in mine:
            flag = self._takes[index, stage, pipeline]
            for kind in self._grid.kinds:
                start, lasts = self._starts[kind, index, stage], self._grid.ticks[kind, stage, pipeline]
                work.append(self.model.new_optional_fixed_size_interval_var(start, lasts, flag, ""))
            # The end as it is on this worker: it matters on no other.
            end = self._starts[freeing, index, stage] + self._grid.ticks[freeing, stage, pipeline]
            start, size = self._starts["F", index, stage], self.model.new_int_var(0, horizon, "")
            lives.append(self.model.new_optional_interval_var(start, size, end, flag, ""))
        self.model.add_no_overlap(work)
        if self._problem.cap(stage) < len(mine):
            self.model.add_cumulative(lives, [1] * len(lives), self._problem.cap(stage))

    def _rename_workers(self, stage: int) -> None:
        """Of two workers that differ in nothing, the first takes a micro-batch before the second does."""
        for first, second in twins_of(self._problem, self._choices, stage):
            earlier: list[cp_model.IntVar] = []
            for index in range(self._count):
                if first in self._choices[index, stage]:
                    self.model.add_bool_or([*earlier, ~self._takes[index, stage, second]])
                    earlier.append(self._takes[index, stage, first])

    def _rename_microbatches(self) -> None:
        for group in alike(self._problem, self._choices):
            for first, second in pairwise(group):
                for kind, stage in self._ordered(first):
                    start = self._starts[kind, first, stage]
                    self.model.add(start <= self._starts[kind, second, stage])

    def _ordered(self, index: int) -> list[tuple[str, int]]:
        """Where micro-batches like this one keep the order of their numbers."""
        has_choice = any(len(self._choices[index, stage]) > 1 for stage in range(self._problem.pp))
        if has_choice:
            return [("F", 0)]
        return [(kind, stage) for stage in range(self._problem.pp) for kind in self._grid.kinds]

    def _add_value(self, limits: Limits) -> None:
        value = self.model.new_int_var(limits.low, limits.high, "value")
        for stage in range(self._problem.pp):
            # Stage 0 starts at tick 0, and the makespan is counted from there.
            first = self.model.new_int_var(0, limits.high if self._is_period and stage > 0 else 0, "")
            for index in range(self._count):
                self.model.add(first <= self._starts["F", index, stage])
                self.model.add(value >= self._end(self._grid.last, index, stage) - first)
        self.model.minimize(value)

    # --- from and to schedules ----------------------------------------------------------------

    def _add_hint(self, hint: Timed) -> None:
        """Tell the solver a schedule, renamed as it would name things."""
        for (kind, index, stage), (pipeline, tick) in self._renamed(hint).items():
            self.model.add_hint(self._starts[kind, index, stage], tick)
            if kind == "F":
                for other, flag in self._taken_by(index, stage).items():
                    self.model.add_hint(flag, other == pipeline)

    def _renamed(self, hint: Timed) -> dict[Key, Slot]:
        ran = self._ran(hint)
        slots: dict[Key, Slot] = {}
        for group in alike(self._problem, self._choices):
            if len(self._ordered(group[0])) == 1:
                by_start = sorted(group, key=lambda index: ran["F", index, 0][1])
                for name, index in zip(group, by_start, strict=True):
                    for kind, stage in self._everything():
                        slots[kind, name, stage] = ran[kind, index, stage]
                continue
            for kind, stage in self._everything():
                taken = sorted((ran[kind, index, stage] for index in group), key=lambda slot: slot[1])
                slots |= {(kind, name, stage): slot for name, slot in zip(group, taken, strict=True)}
        return self._with_twins_renamed(slots)

    def _with_twins_renamed(self, slots: dict[Key, Slot]) -> dict[Key, Slot]:
        names: dict[tuple[int, int], int] = {}
        for stage in range(self._problem.pp):
            for twins in chains_of(twins_of(self._problem, self._choices, stage)):
                seen = [slots["F", index, stage][0] for index in range(self._count)]
                order = sorted(twins, key=lambda twin: seen.index(twin) if twin in seen else self._count)
                names |= {(stage, was): twin for was, twin in zip(order, twins, strict=True)}
        return {
            key: (names.get((key[2], pipeline), pipeline), tick) for key, (pipeline, tick) in slots.items()
        }

    def _everything(self) -> Iterator[tuple[str, int]]:
        for stage in range(self._problem.pp):
            for kind in self._grid.kinds:
                yield kind, stage

    def _ran(self, hint: Timed) -> dict[Key, Slot]:
        """Who did what from which tick on; rounding all starts down keeps a schedule valid on the grid."""
        ran: dict[Key, Slot] = {}
        for worker, op, start, _ in hint.rows():
            index = op.pipeline * self._problem.microbatches + op.microbatch
            tick = int(start * self._grid.scale + 1e-6)
            kind = "I" if op.kind == "B" and self._grid.last == "W" else op.kind
            ran[kind, index, op.stage] = (worker.pipeline, tick)
            if kind != op.kind:
                tick += self._grid.ticks["I", op.stage, worker.pipeline]
                ran["W", index, op.stage] = (worker.pipeline, tick)
        return ran

    def _read(self, solver: cp_model.CpSolver) -> Schedule:
        orders: list[list[tuple[tuple[int, ...], Op]]] = [[] for _ in self._problem.workers]
        for (kind, index, stage), variable in self._starts.items():
            flags = self._taken_by(index, stage)
            pipeline = next(each for each, flag in flags.items() if solver.boolean_value(flag))
            start = solver.value(variable)
            end = start + self._grid.ticks[kind, stage, pipeline]
            op = Op(kind, *divmod(index, self._problem.microbatches), stage)
            # What takes no time comes first, and of several such, W unless its I takes none either.
            is_instant = self._grid.ticks[self._grid.kinds[1], stage, pipeline] == 0
            place = ("FIW" if is_instant else "WFIB").index(kind)
            orders[pipeline * self._problem.pp + stage].append(((start, end, place, index), op))
        sizes = {name: getattr(self._problem, name) for name in ("dp", "pp", "microbatches")}
        return Schedule(orders=tuple(tuple(op for _, op in sorted(order)) for order in orders), **sizes)
