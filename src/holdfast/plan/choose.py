"""The schedule that a running job follows next: quickly found, and checked before anybody follows it."""

from __future__ import annotations

from holdfast.errors import InputError
from holdfast.plan.builders import one_f_one_b
from holdfast.plan.ops import Schedule
from holdfast.plan.planner import make_plan
from holdfast.plan.problem import Problem
from holdfast.plan.validate import check_order

FAULT_FREE = ("1f1b", "zero_bubble")
EFFORT = 10_000
"""What a plan may cost while everybody waits for it: some milliseconds, and a few percent off the best."""


def choose(problem: Problem, *, fault_free: str) -> Schedule:
    """Return a valid schedule; the well-known one that was asked for while nobody is slow or dead."""
    if fault_free not in FAULT_FREE:
        raise InputError(f"fault_free is {fault_free!r}, expected one of {', '.join(FAULT_FREE)}")
    if fault_free == "1f1b" and problem == problem.healthy:
        schedule = one_f_one_b(problem)
        if all(cap >= problem.pp - stage for stage, cap in enumerate(problem.memory or ())):
            return schedule
    schedule = make_plan(problem, effort=EFFORT).schedule
    check_order(problem, schedule)
    return schedule
