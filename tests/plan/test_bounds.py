"""No schedule is better than its bound: not one of all there are, nor one by chance, nor a solver's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import InputError
from holdfast.plan.bounds import lower_bound, makespan_bound
from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Costs, Problem
from holdfast.plan.timing import time_schedule
from instances import small_problem
from oracle import Options, solve_problem
from problems import best_period, problems, problems_of, random_schedule
from schedules import make_problem

FLOAT = 1 + 1e-9


@pytest.mark.parametrize(
    ("problem", "period", "makespan"),
    [
        (make_problem(1, 1, 1), 3, 3),
        (make_problem(1, 4, 1), 12 - 3, 12 - 3),
        (make_problem(), 19, 21),
        (make_problem(dead="1.0"), 27, 27),
        (make_problem(dead="1.1"), 27, 28),
        (make_problem(dead="1.2"), 27, 29),
        (make_problem(dead="1.3"), 27, 30),
        (make_problem(4, 8, 8, dead="0.7"), 37, 40),
        (make_problem(4, 4, 8, dead="0.3"), 33, 36),
        (make_problem(8, 4, 8, dead="0.3"), 30, 33),
        (make_problem(4, 8, 16, dead="0.7"), 66, 73),
        (make_problem(16, 2, 4, dead="0.1"), 15, 16),
        (make_problem(1, 2, 4, slow="0.1=0.5"), 24, 25),
        (make_problem(1, 2, 1, comm=0.5), 6, 6),
        (make_problem(memory=(1, 1, 1, 1)), 54, 54),
    ],
)
def test_known_bounds(problem: Problem, period: float, makespan: float) -> None:
    """Bounds that were found by hand, those of the worked examples among them."""
    assert lower_bound(problem) == pytest.approx(period)
    assert makespan_bound(problem) == pytest.approx(makespan)


@pytest.mark.parametrize(
    ("memory", "period", "makespan"),
    [
        ((4, 3, 2, 1), 31, 31),
        ((5, 4, 3, 2), 29, 29),
        ((4, 4, 4, 4), 28, 29),
        ((6, 5, 4, 3), 28, 29),
        ((5, 5, 5, 5), 27, 29),
        ((6, 6, 6, 6), 27, 29),
    ],
)
def test_memory_raises_the_bound(memory: tuple[int, ...], period: float, makespan: float) -> None:
    """With 3x4x6 and 1.2 dead, tight memory costs at least so much, at most 1 less than was found."""
    problem = make_problem(dead="1.2", memory=memory)
    assert (lower_bound(problem), makespan_bound(problem)) == (period, makespan)


# --- all schedules of tiny problems -----------------------------------------------------------


def _orders(mine: list[tuple[int, int]], stage: int, cap: int) -> Iterator[tuple[Op, ...]]:
    """All orders of F, I and W of some micro-batches on one worker that fit into its memory.

    At stage 0 they start in the order of their numbers: until then nobody can tell them apart.
    """
    done = dict.fromkeys(mine, 0)

    def go(order: tuple[Op, ...]) -> Iterator[tuple[Op, ...]]:
        if len(order) == 3 * len(mine):
            yield order
        fresh = [each for each in mine if done[each] == 0]
        held = sum(0 < count < 3 for count in done.values())
        begin = (fresh[:1] if stage == 0 else fresh) if held < cap else []
        for each in [*begin, *(each for each in mine if 0 < done[each] < 3)]:
            op = Op("FIW"[done[each]], *each, stage)
            done[each] += 1
            yield from go((*order, op))
            done[each] -= 1

    yield from go(())


def _all_schedules(problem: Problem) -> Iterator[Schedule]:
    """Every routing with every order on every worker; those that deadlock too."""
    all_ = [(pipeline, index) for pipeline in range(problem.dp) for index in range(problem.microbatches)]
    per_stage = [list(product(problem.live(stage), repeat=len(all_))) for stage in range(problem.pp)]
    for routes in product(*per_stage):
        choices = [
            [each for each, by in zip(all_, routes[stage], strict=True) if by == pipeline]
            for pipeline, stage in problem.workers
        ]
        orders = [
            list(_orders(mine, worker.stage, problem.cap(worker.stage)))
            for worker, mine in zip(problem.workers, choices, strict=True)
        ]
        for each in product(*orders):
            yield Schedule(dp=problem.dp, pp=problem.pp, microbatches=problem.microbatches, orders=each)


def _optima(problem: Problem) -> tuple[float, float]:
    """The smallest period and makespan of all schedules; a split backward is never worse than a whole one."""
    found = []
    for schedule in _all_schedules(problem):
        try:
            makespan = time_schedule(problem, schedule).makespan
        except InputError:
            continue
        found.append((best_period(problem, schedule), makespan))
    return min(period for period, _ in found), min(makespan for _, makespan in found)


SIZES = ((1, 1, 2), (3, 1, 1), (1, 2, 1), (1, 3, 1), (1, 2, 2), (1, 2, 2), (2, 2, 1), (2, 2, 1))


# The slower worker of the last stage may start first: a bound that holds the faster one to be first is wrong.
SLOW_FIRST = Problem(
    dp=2,
    pp=2,
    microbatches=1,
    costs=(Costs(2, 2, 0.1), Costs(1, 4, 2)),
    speeds=((1, 1), (0.01, 0.75)),
)


@example(SLOW_FIRST)
@settings(max_examples=25)
@given(st.sampled_from(SIZES).flatmap(lambda size: problems_of(*size)))
def test_no_schedule_of_all_is_below_the_bound(problem: Problem) -> None:
    """Of every routing and every order of a tiny problem, none beats its bounds."""
    period, makespan = _optima(problem)
    assert lower_bound(problem) <= period * FLOAT
    assert makespan_bound(problem) <= makespan * FLOAT


# --- larger ones ------------------------------------------------------------------------------


@given(problems(), st.randoms(use_true_random=False))
def test_no_schedule_by_chance_is_below_the_bound(problem: Problem, rng: random.Random) -> None:
    """Whatever a schedule is like, neither its period nor its makespan is below the bound."""
    schedule = random_schedule(problem, rng)
    assert lower_bound(problem) <= best_period(problem, schedule) * FLOAT
    assert makespan_bound(problem) <= time_schedule(problem, schedule).makespan * FLOAT


@pytest.mark.parametrize("seed", [5, 8, 29, 42, 46, 63])
def test_a_solver_does_not_get_below_the_bound(seed: int) -> None:
    """What is proven optimal is at or above the bound."""
    problem = small_problem(seed)
    period = solve_problem(problem, Options())
    makespan = solve_problem(problem, Options(objective="makespan"))
    assert period.is_optimal
    assert makespan.is_optimal
    assert lower_bound(problem) <= (period.best or 0.0) * FLOAT
    assert makespan_bound(problem) <= (makespan.best or 0.0) * FLOAT


@given(problems(microbatches=12))
def test_bounds_contain_each_other(problem: Problem) -> None:
    """A makespan holds a period, a cap only raises it, and a healthy job is not slower than a hit one."""
    period, makespan = lower_bound(problem), makespan_bound(problem)
    assert 0 < period <= makespan
    free = replace(problem, memory=None)
    assert lower_bound(free) <= period * FLOAT
    assert lower_bound(problem.healthy) <= period * FLOAT
    total = problem.dp * problem.microbatches
    shares = [_load(problem, stage, total) for stage in range(problem.pp)]
    assert max(shares) <= period * FLOAT


def _load(problem: Problem, stage: int, total: int) -> float:
    """The time in which the workers of a stage do all of its work if it could be cut into any pieces."""
    return total * problem.costs[stage].total / sum(row[stage] for row in problem.speeds)
