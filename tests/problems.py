"""Any problem and any valid schedule of it, for properties that must hold for all of them."""

from __future__ import annotations

import random
from itertools import permutations

from hypothesis import strategies as st

from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.timing import time_schedule

COSTS = (0.0, 0.1, 1 / 3, 0.5, 1.0, 1.0, 2.0, 3.7)
SPEEDS = (1.0, 1.0, 1.0, 0.9, 0.5, 0.3, 0.01, 0.0)


def problems(dp: int = 4, pp: int = 4, microbatches: int = 5) -> st.SearchStrategy[Problem]:
    """Return a strategy for problems of at most this size, harsh ones too.

    Harsh is memory for one micro-batch, operations that cost nothing, transfers that cost more than the work,
    a single pipeline, stage or micro-batch, and workers at a hundredth of their speed.
    """
    sizes = st.tuples(st.integers(1, dp), st.integers(1, pp), st.integers(1, microbatches))
    return sizes.flatmap(lambda size: problems_of(*size))


@st.composite
def problems_of(draw: st.DrawFn, dp: int, pp: int, microbatches: int) -> Problem:
    """Return a strategy for problems of exactly this size."""
    each = st.tuples(*[st.sampled_from(COSTS)] * 3).filter(any)
    caps = st.tuples(*[st.integers(1, 6)] * pp)
    return Problem(
        dp=dp,
        pp=pp,
        microbatches=microbatches,
        costs=tuple(Costs(*draw(each)) for _ in range(pp)),
        comm=draw(st.sampled_from((0.0, 0.0, 0.1, 0.25, 1.0, 5.0))),
        memory=draw(st.none() | caps),
        speeds=draw(_grids(dp, pp)),
    )


@st.composite
def _grids(draw: st.DrawFn, dp: int, pp: int) -> tuple[tuple[float, ...], ...]:
    columns = draw(st.tuples(*[st.lists(st.sampled_from(SPEEDS), min_size=dp, max_size=dp).filter(any)] * pp))
    return tuple(zip(*columns, strict=True))


def random_schedule(problem: Problem, rng: random.Random) -> Schedule:
    """Return a valid schedule in which chance decides who does what, when, and whether backward is split.

    Operations are drawn one after the other from those that could be next, so nobody waits in a circle.
    """
    orders: dict[Worker, list[Op]] = {worker: [] for worker in problem.workers}
    held = dict.fromkeys(problem.workers, 0)
    at: dict[tuple[int, int, int], Worker] = {}
    ready = [Op("F", q, index, 0) for q in range(problem.dp) for index in range(problem.microbatches)]
    while ready:
        op = rng.choice(ready)
        key = (op.pipeline, op.microbatch, op.stage)
        if op.kind == "F":
            peers = [Worker(pipeline, op.stage) for pipeline in problem.live(op.stage)]
            free = [worker for worker in peers if held[worker] < problem.cap(op.stage)]
            if not free:
                continue
            at[key] = rng.choice(free)
            held[at[key]] += 1
        elif op.kind == "I" and rng.random() < 0.3:
            op = op._replace(kind="B")
        held[at[key]] -= op.kind in "BW"
        orders[at[key]].append(op)
        ready = [each for each in ready if each != op and each != op._replace(kind="I")] + _next(problem, op)
    return Schedule(
        dp=problem.dp,
        pp=problem.pp,
        microbatches=problem.microbatches,
        orders=tuple(map(tuple, orders.values())),
    )


def _next(problem: Problem, op: Op) -> list[Op]:
    """What an operation makes possible."""
    if op.kind == "F":
        is_last = op.stage == problem.pp - 1
        return [op._replace(kind="I") if is_last else op._replace(stage=op.stage + 1)]
    after = [op._replace(kind="W")] if op.kind == "I" else []
    if op.kind in "IB" and op.stage > 0:
        after.append(op._replace(kind="I", stage=op.stage - 1))
    return after


def best_period(problem: Problem, schedule: Schedule) -> float:
    """Return the smallest period of a schedule, over all times that keep its orders.

    When stage s starts at 0, what depends on it keeps stage t busy until ``reach[s][t]``. Around any circle
    of stages the reaches must fit into as many periods as there are stages in it.
    """
    stages = range(problem.pp)
    reach = []
    for first in stages:
        releases = [0.0 if stage == first else -1e18 for stage in stages]
        timed = time_schedule(problem, schedule, releases)
        reach.append([max(row[-1] for row in timed.ends[stage :: problem.pp] if row) for stage in stages])
    return max(
        sum(reach[circle[n - 1]][circle[n]] for n in range(size)) / size
        for size in range(1, problem.pp + 1)
        for circle in permutations(stages, size)
    )
