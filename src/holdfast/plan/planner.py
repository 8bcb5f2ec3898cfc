"""From a problem to a plan: where every micro-batch runs, when backward is split, and the order of it all.

A dead worker is an infinitely slow one: ReCycle's re-routing and FALCON's rebalancing are the same function
called with other numbers. ``adaptive`` is ours; the other modes are ReCycle's steps, one by one.
"""

from __future__ import annotations

import math
import random
from typing import Literal

import msgspec

from holdfast.plan.bounds import lower_bound, makespan_bound
from holdfast.plan.builders import one_f_one_b, zero_bubble
from holdfast.plan.draft import settle, to_timed
from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.roles import Move, normalize
from holdfast.plan.routing import floors_of, recycle_floors
from holdfast.plan.search import ENOUGH, Found, Goal, Task, search
from holdfast.plan.timing import Timed, time_schedule

EFFORT = 400_000
"""Operations that a search may place: well under a second, and less where the bound is met before."""
PAYS = 0.999
"""Roles change only for a period that is shorter by more than this."""

Mode = Literal["adaptive", "naive", "decoupled", "staggered"]


class FaultFree(msgspec.Struct, frozen=True, kw_only=True):
    """Periods of the same job with nobody slow or dead."""

    one_f_one_b: float = msgspec.field(name="1f1b")
    zero_bubble: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its times, and how good it is."""

    problem: Problem
    """With the speeds of the roles: after ``moves``, if there are any."""
    mode: Mode
    timed: Timed
    lower_bound: float
    """No schedule of this problem has a smaller period."""
    fault_free: FaultFree
    moves: tuple[Move, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """Who does what in which order."""
        return self.timed.schedule

    @property
    def period(self) -> float:
        """How often a step can be repeated."""
        return self.timed.period

    @property
    def makespan(self) -> float:
        """How long one step takes from its first start to its last end."""
        return self.timed.makespan

    @property
    def is_optimal(self) -> bool:
        """The period is at its lower bound: nobody can do better."""
        return self.period <= self.lower_bound * ENOUGH

    @property
    def holders(self) -> dict[Worker, Worker]:
        """Which worker holds each role; a role that was left is held by whoever is left without one."""
        taken = {move.to: move.worker for move in self.moves}
        without = sorted(taken.keys() - taken.values())
        left = sorted(set(taken.values()) - taken.keys())
        return {role: role for role in self.problem.workers} | taken | dict(zip(left, without, strict=True))


def make_plan(
    problem: Problem, *, mode: Mode = "adaptive", migrate: bool = False, effort: int = EFFORT
) -> Plan:
    """Return the best plan that was found; migrate allows workers to change their roles where it pays."""
    plan = _plan(problem, mode, effort)
    if not migrate:
        return plan
    normal, moves = normalize(problem)
    if not moves:
        return plan
    moved = _plan(normal, mode, effort)
    if moved.period >= plan.period * PAYS:
        return plan
    return msgspec.structs.replace(moved, moves=moves)


def _plan(problem: Problem, mode: Mode, effort: int) -> Plan:
    bound = lower_bound(problem)
    return Plan(
        problem=problem,
        mode=mode,
        timed=_timed(problem, mode, bound, effort),
        lower_bound=bound,
        fault_free=fault_free(problem, effort),
    )


def _timed(problem: Problem, mode: Mode, bound: float, effort: int) -> Timed:
    if mode == "adaptive" and problem == problem.healthy:
        return zero_bubble(problem, effort // 2)
    goal: Goal = "period" if mode in ("adaptive", "staggered") else "makespan"
    placed = _find(problem, mode, goal, bound, effort).placed
    finish = settle if goal == "period" else to_timed
    return finish(problem, placed, is_coupled=mode == "naive")


def _find(problem: Problem, mode: Mode, goal: Goal, bound: float, effort: int) -> Found:
    rng = random.Random(0)
    if mode == "adaptive":
        return search(floors_of(problem, bound), Task(goal, bound, effort), rng)
    if mode == "naive":
        problem = _with_1f1b_memory(problem)
        bound = makespan_bound(_with_coupled_costs(problem))
    elif goal == "makespan":
        bound = makespan_bound(problem)
    found = Found(math.inf, [])
    floors = recycle_floors(problem, is_coupled=mode == "naive")
    for floor in floors:
        other = search([floor], Task(goal, bound, effort), rng)
        found = min(found, other, key=lambda each: each.value)  # The first one of equals: it moves less.
        if found.value <= bound * ENOUGH:
            break
    return found


def _with_1f1b_memory(problem: Problem) -> Problem:
    memory = tuple(min(problem.cap(stage), problem.pp - stage) for stage in range(problem.pp))
    return msgspec.structs.replace(problem, memory=memory)


def _with_coupled_costs(problem: Problem) -> Problem:
    """For bounds: a backward in one piece is an I that takes as long as both, and a W that takes no time."""
    costs = tuple(Costs(each.forward, each.input + each.weight, 0.0) for each in problem.costs)
    return msgspec.structs.replace(problem, costs=costs)


def fault_free(problem: Problem, effort: int = EFFORT) -> FaultFree:
    """The periods of the job with nobody slow or dead; its pipelines are then alike, so one is enough."""
    one = msgspec.structs.replace(problem, dp=1, speeds=())
    return FaultFree(
        one_f_one_b=time_schedule(one, one_f_one_b(one)).period,
        zero_bubble=zero_bubble(one, effort // 2).period,
    )
