"""Schedules of healthy jobs that everybody knows, to compare with."""

from __future__ import annotations

from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Problem


def one_f_one_b(problem: Problem) -> Schedule:
    """Warm up with as many forwards as there are stages to come, then one backward for each forward."""
    orders = tuple(
        tuple(_one_f_one_b_order(problem, pipeline, stage))
        for pipeline in range(problem.dp)
        for stage in range(problem.pp)
    )
    return Schedule(dp=problem.dp, pp=problem.pp, microbatches=problem.microbatches, orders=orders)


def _one_f_one_b_order(problem: Problem, pipeline: int, stage: int) -> list[Op]:
    count = problem.microbatches
    warm_up = min(count, problem.pp - stage)
    order = [Op("F", pipeline, index, stage) for index in range(warm_up)]
    for index in range(count):
        order.append(Op("B", pipeline, index, stage))
        if index + warm_up < count:
            order.append(Op("F", pipeline, index + warm_up, stage))
    return order
