"""The judge is judged: by formulas, by trying everything, and by a validator that knows nothing of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product

import pytest

from holdfast.errors import InputError
from holdfast.plan.ops import Op, Schedule, parse_schedule
from holdfast.plan.problem import Costs, Problem
from holdfast.plan.timing import peak_of, time_schedule
from holdfast.plan.validate import check
from oracle import Answer, Options, home_routes, lower_bound, solve_problem
from oracle.grid import load_ticks, make_grid, makespan_of, period_of, refine
from oracle.relaxed import Effort, bound_ticks
from oracle.retime import best_times
from schedules import make_problem, timed_1f1b

ONE_F_ONE_B = (4, 3, 2, 1)


def solve(problem: Problem, **options: object) -> Answer:
    """Return an answer whose schedule, if there is one, breaks no rule and is worth what it claims."""
    asked = Options(time_limit_s=60.0, **options)  # type: ignore[arg-type]
    answer = solve_problem(problem, asked)
    if answer.timed is not None:
        check(problem, answer.timed)
        assert answer.best == asked.value(answer.timed)
        assert answer.bound <= asked.value(answer.timed) * (1 + 1e-6)
    return answer


@pytest.mark.parametrize(("dp", "pp", "microbatches"), [(1, 3, 5), (2, 3, 4), (3, 4, 6)])
def test_1f1b_is_optimal_with_its_memory_and_whole_backwards(dp: int, pp: int, microbatches: int) -> None:
    """With the memory of 1F1B and no split, (M + pp - 1)(F + B) cannot be beaten without failures."""
    problem = make_problem(dp, pp, microbatches, memory=tuple(range(pp, 0, -1)))
    answer = solve(problem, objective="makespan", backward="coupled")
    assert answer.is_optimal
    assert answer.best == timed_1f1b(problem).makespan == (microbatches + pp - 1) * 3


@pytest.mark.parametrize(
    ("memory", "period", "makespan"), [(ONE_F_ONE_B, 24, 24), ((4,) * 4, 21, 21), ((7,) * 4, 19, 21)]
)
def test_zero_bubble_optima(memory: tuple[int, ...], period: float, makespan: float) -> None:
    """A healthy pipeline of 4 stages and 6 micro-batches takes 19 with memory to spare, 24 with 1F1B's."""
    problem = make_problem(1, memory=memory)
    assert solve(problem).best == period
    assert solve(problem, objective="makespan").best == makespan


@pytest.mark.parametrize("stage", range(4))
def test_naive_routing_reuses_no_bubble(stage: int) -> None:
    """With one dead worker in 3x4x6, 1F1B's memory and whole backwards, 36 is the best there is."""
    problem = make_problem(dead=f"1.{stage}", memory=ONE_F_ONE_B)
    routes = home_routes(problem)
    answer = solve(problem, objective="makespan", backward="coupled", routes=routes)
    assert (answer.best, answer.is_optimal) == (36, True)


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("objective", ["period", "makespan"])
def test_one_dead_worker(stage: int, objective: str) -> None:
    """Split backwards and memory to spare: the period is 27, the makespan longer by the stage."""
    answer = solve(make_problem(dead=f"1.{stage}"), objective=objective)
    assert (answer.best, answer.is_optimal) == (27 + stage * (objective == "makespan"), True)


SMALL = [
    make_problem(1, 2, 2),
    make_problem(1, 2, 2, costs=(Costs(2.0, 3.0, 1.0), Costs(1.0, 1.5, 0.5))),
    make_problem(1, 2, 2, comm=0.3, memory=(1, 2)),
    make_problem(1, 2, 2, costs=(Costs(1.0, 0.0, 1.0), Costs(1.0, 2.0, 1.0))),
    make_problem(2, 2, 1, dead="1.0"),
    make_problem(2, 2, 1, slow="1.0=0.5", memory=(1, 1)),
    make_problem(2, 2, 1, slow="0.1=0.7 1.0=0.5", comm=0.5),
]


@pytest.mark.parametrize("problem", SMALL)
@pytest.mark.parametrize("backward", ["split", "coupled"])
@pytest.mark.parametrize("objective", ["period", "makespan"])
def test_nothing_better_exists(problem: Problem, backward: str, objective: str) -> None:
    """On problems small enough to try every order on every worker, the answer is the best of them."""
    schedules = every_schedule(problem, "FIW" if backward == "split" else "FB")
    values = [value_of(problem, schedule, objective) for schedule in schedules]
    answer = solve(problem, objective=objective, backward=backward)
    assert answer.is_optimal
    assert answer.best == pytest.approx(min(values))


def every_schedule(problem: Problem, kinds: str) -> Iterator[Schedule]:
    """Every schedule of two micro-batches at two stages that fits into memory and never waits for ever."""
    names = [divmod(index, problem.microbatches) for index in range(2)]
    stages = [list(every_stage(problem, stage, names, kinds)) for stage in range(2)]
    for first, second in product(*stages):
        orders = tuple(order for pair in zip(first, second, strict=True) for order in pair)
        yield Schedule(dp=problem.dp, pp=2, microbatches=problem.microbatches, orders=orders)


def every_stage(
    problem: Problem, stage: int, names: list[tuple[int, int]], kinds: str
) -> Iterator[list[tuple[Op, ...]]]:
    for takers in product(problem.live(stage), repeat=2):
        rows = []
        for pipeline in range(problem.dp):
            mine = [
                [Op(kind, *name, stage) for kind in kinds]
                for name, taker in zip(names, takers, strict=True)
                if taker == pipeline
            ]
            rows.append([order for order in every_order(mine) if peak_of(order) <= problem.cap(stage)])
        yield from map(list, product(*rows))


def every_order(chains: list[list[Op]]) -> Iterator[tuple[Op, ...]]:
    """Every way to merge up to two chains of operations."""
    if len(chains) < 2:
        yield tuple(chains[0]) if chains else ()
        return
    size = len(chains[0])
    for places in combinations(range(2 * size), size):
        first, second = iter(chains[0]), iter(chains[1])
        yield tuple(next(first) if place in places else next(second) for place in range(2 * size))


def value_of(problem: Problem, schedule: Schedule, objective: str) -> float:
    try:
        timed = best_times(problem, schedule, is_period=objective == "period")
    except InputError:
        return math.inf
    return timed.period if objective == "period" else timed.makespan


# --- times off the grid -----------------------------------------------------------------------

HALF_A_TICK = """
dp 2 pp 2 microbatches 4
0.0: 0F1.0 0F1.1 0F0.3 0F0.2 0I1.1 0I1.0 0I0.2 0I0.3 0W1.1 0W0.3 0W0.2 0W1.0
0.1: 1F1.0 1F1.1 1F0.1 1F0.2 1I1.1 1I1.0 1I0.2 1I0.1 1W0.1 1W1.1 1W0.2 1W1.0
1.0: 0F1.3 0F0.0 0F0.1 0F1.2 0I1.2 0I1.3 0I0.1 0I0.0 0W0.1 0W0.0 0W1.3 0W1.2
1.1: 1F1.3 1F1.2 1F0.0 1F0.3 1I1.3 1I1.2 1I0.3 1I0.0 1W0.0 1W1.2 1W1.3 1W0.3
"""


def test_whole_costs_can_have_a_best_period_between_ticks() -> None:
    """With these orders the period is 24.5, though every cost is whole; starting early gives more."""
    problem = make_problem(2, 2, 4, costs=(Costs(), Costs(1.0, 3.0, 2.0)))
    schedule = parse_schedule(HALF_A_TICK)
    timed = best_times(problem, schedule, is_period=True)
    check(problem, timed)
    assert timed.period == pytest.approx(24.5)
    assert time_schedule(problem, schedule).period > timed.period


def test_bound_leaves_room_for_periods_between_ticks() -> None:
    """No whole period below 29 proves 28 and a quarter at pp 4; on a grid 12 times as fine it proves 29."""
    problem = make_problem()
    grid = make_grid(problem, "FIW", most_ticks=500)
    assert grid.scale == 1
    assert period_of(problem, grid, 29) == 28.25
    assert period_of(problem, refine(grid, 12), 12 * 29) == 29
    assert period_of(problem, refine(grid, 12), 12 * 29 - 5) == pytest.approx(28 + 2 / 3)
    assert makespan_of(grid, 29) == 29


def test_grid_is_exact_where_it_can_be() -> None:
    """Half speed needs no finer ticks than whole costs; a speed of 0.7 needs sevenths."""
    assert make_grid(make_problem(slow="1.2=0.5"), "FIW", most_ticks=500).scale == 1
    sevenths = make_grid(make_problem(slow="1.2=0.7"), "FIW", most_ticks=500)
    assert sevenths.scale == 7
    assert sevenths.ticks["F", 2, 1] == 10
    large = make_problem(costs=(Costs(5478.0, 5806.0, 3534.0),) * 4, comm=200.0)
    assert make_grid(large, "FIW", most_ticks=100_000).scale == Fraction(1, 2)


@pytest.mark.parametrize("most_ticks", [10, 30, 60])
def test_rounding_never_proves_too_much(most_ticks: int) -> None:
    """However coarse the grid, its bound stays at or below the best of all schedules."""
    problem = make_problem(2, 2, 1, slow="0.1=0.37 1.0=0.83", costs=(Costs(1.0, 1.37, 0.71),) * 2, comm=0.19)
    best = min(value_of(problem, schedule, "period") for schedule in every_schedule(problem, "FIW"))
    grid = make_grid(problem, "FIW", most_ticks=most_ticks)
    assert grid.loss > 0
    found = bound_ticks(problem, grid, Effort(seconds=20.0, threads=1), is_period=True)
    assert 0 < load_ticks(problem, grid) <= found.least
    assert period_of(problem, grid, found.least) <= best


# --- what it is asked -------------------------------------------------------------------------


def test_nothing_is_found_below_the_optimum() -> None:
    """Asked for 26 where 27 is optimal, there is no schedule, and the bound is above 26."""
    answer = solve(make_problem(dead="1.2"), at_most=26.0)
    assert answer.best is None
    assert answer.timed is None
    assert not answer.is_optimal
    assert answer.bound > 26


@pytest.mark.parametrize("is_split", [False, True])
def test_answer_is_no_worse_than_the_hint(is_split: bool) -> None:
    """From 1F1B with or without split backwards the way leads down, also when there is hardly any time."""
    problem = make_problem(2, 3, 4, dead="0.1")
    hint = timed_1f1b(problem, is_split=is_split)
    assert solve(problem, hint=hint).best == 24
    hurried = solve_problem(problem, Options(hint=hint, time_limit_s=0.01))
    assert hurried.best is not None
    assert hurried.bound <= hurried.best <= hint.period


def test_routes_are_kept() -> None:
    """Micro-batches with a route run there, and the rest where it is best."""
    problem = make_problem(2, 2, 2)
    away = {(0, 0, 1): 1, (0, 1, 1): 1, (1, 0, 1): 1}
    answer = solve(problem, routes=away)
    assert answer.timed is not None
    ran = {op[1:]: worker.pipeline for worker, op, _, _ in answer.timed.rows()}
    assert {route: ran[route] for route in away} == away
    assert answer.best is not None
    assert answer.best >= 9


@pytest.mark.parametrize(("shape", "makespan"), [((4, 4, 8), 36), ((8, 4, 8), 33), ((4, 8, 8), 40)])
def test_makespan_counts_the_way_to_the_hit_stage(shape: tuple[int, int, int], makespan: float) -> None:
    """The last stage's share of the work starts when the first micro-batch has come through all others."""
    problem = make_problem(*shape, dead=f"0.{shape[1] - 1}")
    assert lower_bound(problem, Options(objective="makespan", time_limit_s=0.01)) == makespan


def test_counting_proves_more_than_load_also_where_there_is_little_to_do() -> None:
    """2x2x2 with a dead worker and room for two micro-batches needs 13, one more than its load."""
    problem = make_problem(2, 2, 2, dead="0.1", memory=(2, 2))
    answer = solve(problem)
    assert answer.best == 13
    assert 12 < lower_bound(problem) <= lower_bound(problem, Options(hint=answer.timed)) <= 13


def test_4x8x8_with_the_last_stage_hit_needs_37() -> None:
    """Counts alone prove what the load of no stage shows: 37, where the load bound says 33."""
    problem = make_problem(4, 8, 8, dead="0.7")
    grid = make_grid(problem, "FIW", most_ticks=500)
    assert load_ticks(problem, grid) == 33
    assert 36 < lower_bound(problem, Options(time_limit_s=60.0, at_most=36.0)) <= 37
