"""Plans: ReCycle's worked examples, what CP-SAT proves, and for any problem a valid, repeatable plan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.plan.bounds import makespan_bound
from holdfast.plan.builders import one_f_one_b
from holdfast.plan.planner import FaultFree, Mode, Plan, make_plan
from holdfast.plan.problem import Costs, Problem
from holdfast.plan.timing import Timed, time_schedule
from holdfast.plan.validate import validate
from instances import random_problem, small_problem
from problems import problems
from schedules import make_problem

FLOAT = 1 + 1e-9
SMALL = 100_000
"""An effort that is a quarter of the default one: enough for all that is asked here."""
MODES: tuple[Mode, ...] = ("adaptive", "naive", "decoupled", "staggered")


def _plan(problem: Problem, mode: Mode = "adaptive", effort: int = SMALL) -> Plan:
    """Return a plan that breaks no rule and is not below its bounds."""
    plan = make_plan(problem, mode=mode, effort=effort)
    assert validate(problem, plan.timed) == []
    assert plan.lower_bound <= plan.period * FLOAT
    assert makespan_bound(problem) <= plan.makespan * FLOAT
    assert (plan.problem, plan.mode, plan.moves) == (problem, mode, ())
    return plan


# --- ReCycle's examples: 3x4x6 with one failure in pipeline 1 -----------------------------------


@pytest.mark.parametrize("stage", range(4))
def test_one_failure_in_each_mode(stage: int) -> None:
    """Naive re-routing takes 36, decoupled 27 + s, staggered and adaptive the fault-free 27."""
    problem = make_problem(dead=f"1.{stage}")
    assert _plan(problem, "naive").makespan == 36
    assert _plan(problem, "decoupled").makespan == 27 + stage
    assert _plan(problem, "staggered").period == 27
    plan = _plan(problem)
    assert (plan.period, plan.lower_bound, plan.is_optimal) == (27, 27, True)
    assert plan.fault_free == FaultFree(one_f_one_b=27, zero_bubble=19)


# Shape, failures, then makespan of naive and decoupled, and period of staggered, by search with unit times.
TABLE = [
    ((4, 4, 8), (1, 2, 4), 42, 36, 33),
    ((8, 4, 8), (1, 2, 4), 39, 33, 30),
    ((4, 8, 16), (1, 2, 8), 87, 73, 66),
    ((16, 2, 4), (1, 2), 18, 16, 15),
    ((4, 8, 8), (1, 2, 8), 54, 40, 38),
]
CASES = [
    pytest.param(shape, _dead, *values, id=f"{shape}-{failures}-{where}")
    for shape, counts, *values in TABLE
    for failures in counts
    for where in ("same", "different")
    for _dead in [
        " ".join(f"{0 if where == 'same' else n % shape[0]}.{shape[1] - 1 - n}" for n in range(failures))
    ]
]


@pytest.mark.parametrize(("shape", "dead", "naive", "decoupled", "staggered"), CASES)
def test_one_failure_per_stage_from_the_last_one_up(
    shape: tuple[int, int, int], dead: str, naive: float, decoupled: float, staggered: float
) -> None:
    """Failures in one pipeline or in different ones cost what the table says, or less where it may be beaten.

    Naive is (M + extra + pp - 1) times 3 by definition; the others are at their bounds but for 4x8x8.
    """
    dp, pp, microbatches = shape
    problem = make_problem(dp, pp, microbatches, dead=dead)
    extra = -(-microbatches // (dp - 1))
    assert _plan(problem, "naive").makespan == naive == (microbatches + extra + pp - 1) * 3
    assert _plan(problem, "decoupled").makespan == decoupled == makespan_bound(problem)
    for mode in ("staggered", "adaptive"):
        plan = _plan(problem, mode)
        assert plan.period <= staggered
        assert plan.is_optimal or shape == (4, 8, 8)
    assert plan.fault_free.one_f_one_b == (microbatches + pp - 1) * 3


def test_fewer_microbatches_than_stages() -> None:
    """4x8x8 with the last stage hit is solved at 37, which its bound proves optimal."""
    plan = _plan(make_problem(4, 8, 8, dead="0.7"))
    assert (plan.period, plan.lower_bound) == (37, 37)


# Caps, then what a search found with unit times: makespan decoupled, period staggered.
CAPS = [
    ((4, 3, 2, 1), 32, 32),
    ((5, 4, 3, 2), 30, 30),
    ((4, 4, 4, 4), 29, 29),
    ((6, 5, 4, 3), 29, 29),
    ((5, 5, 5, 5), 29, 28),
    ((6, 6, 6, 6), 29, 27),
]


@pytest.mark.parametrize(("memory", "decoupled", "staggered"), CAPS)
def test_memory_against_time(memory: tuple[int, ...], decoupled: float, staggered: float) -> None:
    """3x4x6 with 1.2 dead: what less memory costs, at most what is known; naive has 1F1B's memory anyway."""
    problem = make_problem(dead="1.2", memory=memory)
    assert _plan(problem, "naive").makespan == 36
    assert _plan(problem, "decoupled").makespan <= decoupled
    assert _plan(problem, "staggered").period <= staggered
    assert _plan(problem).period <= staggered


# --- proven optima ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "optimum"),
    [(5, 15), (6, 86 / 9), (8, 10), (51, 12), (13, 18), (29, 13), (42, 12), (43, 13), (60, 15), (63, 12)],
)
def test_small_plans_are_optimal(seed: int, optimum: float) -> None:
    """Plans of small problems with slow and dead workers meet what CP-SAT proves to be the best."""
    assert _plan(small_problem(seed)).period == pytest.approx(optimum)


@pytest.mark.parametrize("speed", [0.9, 0.75, 0.5, 0.25, 0.01])
def test_one_slow_worker(speed: float) -> None:
    """In 4x4x16 the others take what a slow worker cannot: close to the bound, far from waiting for it."""
    problem = make_problem(4, 4, 16, slow=f"1.2={speed}")
    plan = _plan(problem)
    assert plan.period <= plan.lower_bound * 1.02
    assert plan.period <= _nothing_done(problem)


# --- any problem ------------------------------------------------------------------------------


def _nothing_done(problem: Problem) -> float:
    """The period of plain 1F1B in which everybody waits for the slow."""
    return time_schedule(problem, one_f_one_b(problem)).period


def _check_mode(plan: Plan) -> None:
    """Naive has whole backwards and 1F1B's memory; all stay within their caps."""
    kinds = {op.kind for order in plan.schedule.orders for op in order}
    peaks = plan.timed.peak_in_flight
    assert kinds == {"F", "B"} if plan.mode == "naive" else kinds <= {"F", "I", "W", "B"}
    for worker, peak in peaks.items():
        assert peak <= plan.problem.cap(worker.stage)
        assert plan.mode != "naive" or peak <= plan.problem.pp - worker.stage
        assert (peak == 0) or plan.problem.speed(worker) > 0


@settings(max_examples=50)
@given(problems(), st.sampled_from(MODES))
def test_any_problem_has_a_valid_plan(problem: Problem, mode: Mode) -> None:
    """Whatever the problem, each mode makes a plan by its own rules, and the same one again."""
    plan = _plan(problem, mode, effort=2000)
    _check_mode(plan)
    assert make_plan(problem, mode=mode, effort=2000) == plan
    fault_free = make_plan(problem.healthy, mode=mode, effort=2000).fault_free
    assert plan.fault_free == fault_free
    assert plan.fault_free.one_f_one_b == pytest.approx(_nothing_done(problem.healthy))


@pytest.mark.parametrize("seed", range(25))
def test_random_problems(seed: int) -> None:
    """Uneven stages, slow and dead workers, any memory: valid in all modes, repeatable, near the bound."""
    problem = random_problem(seed)
    plan = _plan(problem, effort=6000)
    assert plan.period <= plan.lower_bound * 1.15
    assert make_plan(problem, effort=6000) == plan
    for mode in MODES:
        _check_mode(_plan(problem, mode, effort=0))


@pytest.mark.parametrize("seed", [7, 19, 28, 31, 33])
def test_no_stage_could_start_later(seed: int) -> None:
    """Where the period counts, each stage starts so late that a little later some stage would end later."""
    problem = random_problem(seed)
    timed = _plan(problem, effort=0).timed
    firsts, ends = _edges(problem, timed)
    for stage in range(problem.pp):
        later = [first + 0.01 * (place == stage) for place, first in enumerate(firsts)]
        _, moved = _edges(problem, time_schedule(problem, timed.schedule, later))
        assert max(map(float.__sub__, moved, ends)) == pytest.approx(0.01)


def _edges(problem: Problem, timed: Timed) -> tuple[list[float], list[float]]:
    """Per stage, its first start and its last end."""
    stages = [slice(stage, None, problem.pp) for stage in range(problem.pp)]
    firsts = [min(row[0] for row in timed.starts[rows] if row) for rows in stages]
    return firsts, [max(row[-1] for row in timed.ends[rows] if row) for rows in stages]


@settings(max_examples=40)
@given(problems(), st.integers(2, 4))
def test_adaptive_is_never_worse_than_doing_nothing(problem: Problem, factor: int) -> None:
    """Where all live and 1F1B fits into memory, a plan is at least as good as waiting for the slow."""
    speeds = tuple(tuple(max(speed, 0.2) for speed in row) for row in problem.speeds)
    alive = Problem(
        dp=problem.dp,
        pp=problem.pp,
        microbatches=problem.microbatches * factor,
        costs=problem.costs,
        comm=problem.comm,
        speeds=speeds,
    )
    assert _plan(alive, effort=8000).period <= _nothing_done(alive) * FLOAT


def test_workers_whose_share_is_none_are_left_out() -> None:
    """A worker so slow that its share is none blocks nobody, though memory for one leaves no other way."""
    problem = Problem(
        dp=5,
        pp=4,
        microbatches=5,
        comm=0.2,
        memory=(1, 1, 1, 1),
        costs=(Costs(1, 1, 0.5), Costs(3.7, 1, 0.5), Costs(0, 0.5, 1), Costs(2, 1, 2)),
        speeds=((1, 1, 1, 1), (0, 0.3, 0.3, 1), (0, 1, 0.9, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    )
    for mode in MODES:
        _check_mode(_plan(problem, mode))


@pytest.mark.parametrize("unit", [1e-6, 0.1, 1 / 3, 1e6])
def test_the_unit_of_time_does_not_matter(unit: float) -> None:
    """Costs in another unit give the same figures in that unit."""
    costs = (Costs(unit, unit, unit),) * 4
    plan = _plan(make_problem(dead="1.2", costs=costs))
    assert [plan.period, plan.lower_bound] == pytest.approx([27 * unit] * 2)
    assert _plan(make_problem(dead="1.2", costs=costs), "naive").makespan == pytest.approx(36 * unit)
