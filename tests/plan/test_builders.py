"""1F1B is what everybody knows it to be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from holdfast.plan.bounds import lower_bound
from holdfast.plan.builders import one_f_one_b, zero_bubble
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.timing import time_schedule
from holdfast.plan.validate import validate
from problems import problems
from schedules import make_problem
from schedules import one_f_one_b as by_another_rule


def test_1f1b_of_three_stages() -> None:
    """Stage s runs pp - s forwards ahead, then alternates, then drains."""
    assert str(one_f_one_b(make_problem(1, 3, 4))).splitlines() == [
        "dp 1 pp 3 microbatches 4",
        "0.0: 0F0.0 0F0.1 0F0.2 0B0.0 0F0.3 0B0.1 0B0.2 0B0.3",
        "0.1: 1F0.0 1F0.1 1B0.0 1F0.2 1B0.1 1F0.3 1B0.2 1B0.3",
        "0.2: 2F0.0 2B0.0 2F0.1 2B0.1 2F0.2 2B0.2 2F0.3 2B0.3",
    ]


@pytest.mark.parametrize(
    ("dp", "pp", "microbatches"),
    [(3, 4, 6), (4, 4, 8), (8, 4, 8), (4, 8, 16), (16, 2, 4), (4, 8, 8), (1, 1, 1)],
)
def test_1f1b_takes_what_the_formula_says(dp: int, pp: int, microbatches: int) -> None:
    """The period is (M + pp - 1)(F + I + W), and stage s holds pp - s micro-batches."""
    problem = make_problem(dp, pp, microbatches, costs=(Costs(5, 6, 4),) * pp)
    timed = time_schedule(problem, one_f_one_b(problem))
    assert timed.period == timed.makespan == (microbatches + pp - 1) * 15
    assert timed.peak_in_flight == {
        Worker(pipeline, stage): min(microbatches, pp - stage)
        for pipeline in range(dp)
        for stage in range(pp)
    }


@given(problems(microbatches=8))
def test_1f1b_is_valid_for_any_healthy_job(problem: Problem) -> None:
    """With its own memory it breaks no rule, whatever the stages cost, and is what another rule makes."""
    memory = tuple(range(problem.pp, 0, -1))
    healthy = Problem(
        dp=problem.dp, pp=problem.pp, microbatches=problem.microbatches, costs=problem.costs, memory=memory
    )
    schedule = one_f_one_b(healthy)
    assert schedule == by_another_rule(healthy)
    assert validate(healthy, time_schedule(healthy, schedule)) == []


@pytest.mark.parametrize(
    ("memory", "period"), [((4, 3, 2, 1), 24), ((4, 4, 4, 4), 22), ((7, 7, 7, 7), 19), (None, 19)]
)
def test_zero_bubble_of_four_stages(memory: tuple[int, ...] | None, period: float) -> None:
    """With six micro-batches it takes at most so much with this memory, and 19 is its bound."""
    problem = make_problem(memory=memory)
    timed = zero_bubble(problem, 20_000)
    assert lower_bound(problem) <= timed.period <= period
    assert validate(problem, timed) == []


@settings(max_examples=40)
@given(problems(microbatches=8))
def test_zero_bubble_is_valid_and_the_same_in_all_pipelines(problem: Problem) -> None:
    """Whatever is asked, the job is planned as a healthy one, within its memory, each pipeline by itself."""
    timed = zero_bubble(problem, 2000)
    assert validate(problem.healthy, timed) == []
    first = timed.schedule.orders[: problem.pp]
    for pipeline in range(problem.dp):
        mine = slice(pipeline * problem.pp, (pipeline + 1) * problem.pp)
        renamed = tuple(tuple(op._replace(pipeline=pipeline) for op in order) for order in first)
        assert timed.schedule.orders[mine] == renamed
        assert (timed.starts[mine], timed.ends[mine]) == (
            timed.starts[: problem.pp],
            timed.ends[: problem.pp],
        )
