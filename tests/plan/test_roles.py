"""Roles change only where it pays, spread failures evenly, and nobody is in two places."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.plan.planner import Plan, make_plan
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.roles import Move, normalize
from holdfast.plan.share import split
from holdfast.plan.validate import validate
from problems import problems
from schedules import make_problem

FLOAT = 1 + 1e-9


def _load(problem: Problem, stage: int) -> float:
    """The time of the busiest worker of a stage, by the split alone."""
    speeds = [row[stage] for row in problem.speeds]
    counts = split(problem.dp * problem.microbatches, speeds)
    cost = problem.costs[stage].total
    return max(cost * count / speed for count, speed in zip(counts, speeds, strict=True) if count)


def _heaviest(problem: Problem) -> float:
    return max(_load(problem, stage) for stage in range(problem.pp))


def test_a_survivor_of_an_untouched_stage_takes_a_dead_role() -> None:
    """With two dead at one stage of 4x4 and none elsewhere, one worker moves and one failure goes late."""
    problem = make_problem(4, 4, 8, dead="0.0 1.0", state_bytes=(100, 200, 300, 400))
    moved, moves = normalize(problem)
    assert moves == (Move(worker=Worker(0, 3), to=Worker(0, 0), size_bytes=100),)
    assert moved == make_problem(4, 4, 8, dead="1.0 0.3", state_bytes=(100, 200, 300, 400))


def test_a_slow_worker_goes_where_it_hurts_least() -> None:
    """A slow worker and one of a cheaper stage change places; both copy the state of their new stage."""
    costs = (Costs(1, 1, 1), Costs(3, 3, 3))
    problem = make_problem(2, 2, 4, costs=costs, slow="0.1=0.5", state_bytes=(10, 30))
    moved, moves = normalize(problem)
    assert moves == (
        Move(worker=Worker(0, 1), to=Worker(0, 0), size_bytes=10),
        Move(worker=Worker(0, 0), to=Worker(0, 1), size_bytes=30),
    )
    assert moved.speeds == ((0.5, 1), (1, 1))


@pytest.mark.parametrize(
    "problem",
    [
        make_problem(),
        make_problem(dead="1.2"),
        make_problem(dead="0.0 1.1 2.2 0.3"),
        make_problem(3, 3, 1, dead="1.0 2.0 1.1 2.1"),
        make_problem(1, 4, 8, slow="0.2=0.5"),
        make_problem(4, 1, 8, dead="0.0 1.0"),
    ],
    ids=["healthy", "one dead", "one dead per stage", "one spare for two", "one pipeline", "one stage"],
)
def test_nobody_moves_where_it_does_not_pay(problem: Problem) -> None:
    """Without a failure too many at some stage, or without another stage, all keep their roles."""
    assert normalize(problem) == (problem, ())


def test_without_sizes_nothing_is_counted() -> None:
    """If the size of the state is not known, moves are told with 0 bytes."""
    _, moves = normalize(make_problem(4, 4, 8, dead="0.0 1.0"))
    assert [move.size_bytes for move in moves] == [None]


@given(problems(microbatches=8))
def test_roles_are_a_permutation_that_is_not_worse(problem: Problem) -> None:
    """If anybody moves the heaviest stage gets lighter; each live worker has one role, a dead one none."""
    moved, moves = normalize(problem)
    assert not moves or _heaviest(moved) < _heaviest(problem) / FLOAT
    before = Counter(speed for row in problem.speeds for speed in row)
    assert Counter(speed for row in moved.speeds for speed in row) == before
    who, to = [move.worker for move in moves], [move.to for move in moves]
    assert len(set(who)) == len(who)
    assert len(set(to)) == len(to)
    assert all(move.worker != move.to and problem.speed(move.worker) > 0 for move in moves)
    left = set(who) - set(to)
    for worker in problem.workers:
        speed = 0.0 if worker in left else problem.speed(worker)
        source = next((move.worker for move in moves if move.to == worker), None)
        assert moved.speed(worker) == (problem.speed(source) if source else speed)


@st.composite
def _failures(draw: st.DrawFn) -> Problem:
    """Equal stages with any pattern of dead workers that leaves one at each."""
    dp, pp = draw(st.sampled_from(((2, 2), (2, 4), (3, 2), (3, 3), (4, 2), (5, 3), (4, 6))))
    live = [draw(st.sets(st.integers(0, dp - 1), min_size=1)) for _ in range(pp)]
    dead = " ".join(f"{row}.{stage}" for stage in range(pp) for row in range(dp) if row not in live[stage])
    return make_problem(dp, pp, draw(st.integers(1, 12)), dead=dead)


@settings(max_examples=50)
@given(_failures())
def test_failures_of_equal_stages_are_spread_evenly(problem: Problem) -> None:
    """No way to place the survivors has a lighter heaviest stage than the one with the failures spread."""
    moved, _ = normalize(problem)
    dead = sum(not speed for row in problem.speeds for speed in row)
    total, live = problem.dp * problem.microbatches, problem.dp - math.ceil(dead / problem.pp)
    assert _heaviest(moved) == 3 * math.ceil(total / live)


GRIDS = {"2x2": (2, 2), "2x3": (2, 3), "3x2": (3, 2)}


@pytest.mark.parametrize("size", GRIDS)
def test_even_spread_is_what_trying_everything_finds(size: str) -> None:
    """The formula above agrees with all grids that have as many dead."""
    dp, pp = GRIDS[size]
    workers = [Worker(pipeline, stage) for pipeline in range(dp) for stage in range(pp)]
    for count in range(1, (dp - 1) * pp + 1):
        loads = {}
        for dead in combinations(workers, count):
            try:
                loads[dead] = make_problem(dp, pp, 5, dead=" ".join(map(str, dead)))
            except InputError:
                continue
        best = min(map(_heaviest, loads.values()))
        assert {_heaviest(normalize(problem)[0]) for problem in loads.values()} == {best}


# --- in a plan --------------------------------------------------------------------------------


@settings(max_examples=30)
@given(problems(3, 3, 4))
def test_a_plan_with_moves_is_valid_and_faster(problem: Problem) -> None:
    """A plan that may migrate is never longer; if it does, it is shorter, and its roles are a permutation."""
    stay, plan = make_plan(problem, effort=3000), make_plan(problem, migrate=True, effort=3000)
    assert plan.period <= stay.period
    assert validate(plan.problem, plan.timed) == []
    assert sorted(plan.holders) == sorted(plan.holders.values()) == problem.workers
    assert (plan == stay) or (plan.moves and plan.period < stay.period)
    for role, holder in plan.holders.items():
        assert plan.problem.speed(role) == problem.speed(holder)


def test_a_plan_tells_its_moves() -> None:
    """Two dead at one stage of 4x4x8: 48 without moving, 33 with one worker that changes its role."""
    problem = make_problem(4, 4, 8, dead="0.3 1.3", state_bytes=(7, 7, 7, 9))
    plan = make_plan(problem, migrate=True, effort=20_000)
    assert _figures(make_plan(problem, effort=20_000)) == (48, 48, ())
    assert _figures(plan) == (33, 33, (Move(worker=Worker(0, 2), to=Worker(0, 3), size_bytes=9),))
    assert plan.problem == make_problem(4, 4, 8, dead="1.3 0.2", state_bytes=(7, 7, 7, 9))
    changed = {role: holder for role, holder in plan.holders.items() if role != holder}
    assert changed == {Worker(0, 3): Worker(0, 2), Worker(0, 2): Worker(0, 3)}


def _figures(plan: Plan) -> tuple[float, float, tuple[Move, ...]]:
    return plan.period, plan.lower_bound, plan.moves
