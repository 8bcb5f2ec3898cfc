"""What the list scheduler placed: measured, shifted to where it costs least, and turned into a schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.plan.dispatch import FORWARD, INPUT, WEIGHT, Placed
from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Problem
from holdfast.plan.timing import Timed


def makespan_of(placed: Sequence[Placed]) -> float:
    """Last end minus first start."""
    return max(end for _, _, _, _, end in placed) - placed[0][3]


def last_ends(problem: Problem, placed: Sequence[Placed]) -> list[float]:
    """Per stage, when its last operation ends."""
    by_worker = [-math.inf] * (problem.dp * problem.pp)
    for worker, _, _, _, end in placed:
        by_worker[worker] = end  # A worker's operations come in order, so its last one stays.
    return [max(by_worker[stage :: problem.pp]) for stage in range(problem.pp)]


def latest_starts(problem: Problem, placed: Sequence[Placed], ends: Sequence[float]) -> list[float]:
    """Per stage, how late it could start if every worker kept its order and every stage its last end."""
    pp, comm = problem.pp, problem.comm
    count = problem.dp * problem.microbatches
    # When the next operation on a micro-batch must start at the latest, were it to arrive without delay.
    forward = [[0.0] * count for _ in range(pp)]
    backward = [[math.inf] * count for _ in range(pp)]
    before = [ends[worker % pp] for worker in range(problem.dp * pp)]
    for worker, kind, q, start, end in reversed(placed):
        latest = before[worker]
        if kind == WEIGHT:
            before[worker] = latest - (end - start)
            continue
        stage = worker % pp
        need = (forward if kind == FORWARD else backward)[stage][q]
        latest = (latest if latest < need else need) - (end - start)
        before[worker] = latest
        if kind == FORWARD:
            if stage:
                forward[stage - 1][q] = latest - comm
        elif stage == pp - 1:
            forward[stage][q] = latest
        if kind == INPUT and stage < pp - 1:
            backward[stage + 1][q] = latest - comm
    return [min(before[stage::pp]) for stage in range(pp)]


def shifted(problem: Problem, placed: Sequence[Placed], firsts: Sequence[float]) -> list[Placed]:
    """Return the same orders with earliest times, but no stage before its given first start."""
    pp, comm, last = problem.pp, problem.comm, problem.pp - 1
    count = problem.dp * problem.microbatches
    there = [[0.0] * count for _ in range(pp)]
    back = [[0.0] * count for _ in range(pp)]
    free = [firsts[worker % pp] for worker in range(problem.dp * pp)]
    moved = []
    for worker, kind, q, start, end in placed:
        stage = worker % pp
        at = free[worker]
        if kind != WEIGHT:
            at = max(at, (there if kind == FORWARD else back)[stage][q])
        free[worker] = done = at + (end - start)
        if kind == FORWARD and stage < last:
            there[stage + 1][q] = done + comm
        elif kind == FORWARD:
            back[stage][q] = done
        elif kind == INPUT and stage:
            back[stage - 1][q] = done + comm
        moved.append((worker, kind, q, at, done))
    return moved


def settle(problem: Problem, placed: Sequence[Placed], *, is_coupled: bool) -> Timed:
    """Return the draft as a schedule in which every stage starts as late as its last end allows."""
    firsts = latest_starts(problem, placed, last_ends(problem, placed))
    return to_timed(problem, shifted(problem, placed, firsts), is_coupled=is_coupled)


def to_timed(problem: Problem, placed: Sequence[Placed], *, is_coupled: bool) -> Timed:
    """Return the draft as a schedule with times; I and W become one B where nobody waits in between."""
    letters = "FBW" if is_coupled else "FIW"
    ops: list[list[Op]] = [[] for _ in range(problem.dp * problem.pp)]
    starts: list[list[float]] = [[] for _ in ops]
    ends: list[list[float]] = [[] for _ in ops]
    wanted = _wanted(problem, placed)
    for worker, kind, q, start, end in placed:
        stage = worker % problem.pp
        place = divmod(q, problem.microbatches)
        mine = ops[worker]
        if kind == WEIGHT and wanted[stage][q] >= end + problem.comm and mine[-1] == ("I", *place, stage):
            mine[-1] = Op("B", *place, stage)
            ends[worker][-1] = end
            continue
        mine.append(Op(letters[kind], *place, stage))
        starts[worker].append(start)
        ends[worker].append(end)
    schedule = Schedule(
        dp=problem.dp, pp=problem.pp, microbatches=problem.microbatches, orders=tuple(map(tuple, ops))
    )
    return Timed(schedule=schedule, starts=tuple(map(tuple, starts)), ends=tuple(map(tuple, ends)))


def _wanted(problem: Problem, placed: Sequence[Placed]) -> list[list[float]]:
    """Per stage and micro-batch, when the stage before starts on its gradient; never, for the first stage."""
    wanted = [[math.inf] * (problem.dp * problem.microbatches) for _ in range(problem.pp)]
    for worker, kind, q, start, _ in placed:
        stage = worker % problem.pp
        if kind == INPUT and stage < problem.pp - 1:
            wanted[stage + 1][q] = start
    return wanted
