"""Schedules of healthy jobs that everybody knows, to compare with."""

from __future__ import annotations

import random

import msgspec

from holdfast.plan.bounds import lower_bound
from holdfast.plan.draft import settle
from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Problem
from holdfast.plan.routing import floors_of
from holdfast.plan.search import Task, search
from holdfast.plan.timing import Timed


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


def zero_bubble(problem: Problem, effort: int) -> Timed:
    """Return the shortest period found for a healthy job that may split its backward, under its memory cap.

    All pipelines of a healthy job are alike: one is planned, and the others follow it.
    """
    one = msgspec.structs.replace(problem, dp=1, speeds=())
    bound = lower_bound(one)
    found = search(floors_of(one, bound), Task("period", bound, effort), random.Random(0))
    timed = settle(one, found.placed, is_coupled=False)
    orders = tuple(
        tuple(op._replace(pipeline=pipeline) for op in order)
        for pipeline in range(problem.dp)
        for order in timed.schedule.orders
    )
    schedule = msgspec.structs.replace(timed.schedule, dp=problem.dp, orders=orders)
    return Timed(schedule=schedule, starts=timed.starts * problem.dp, ends=timed.ends * problem.dp)
