"""Queues and limits: what must move moves, what need not stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.plan.problem import Costs, Problem
from holdfast.plan.routing import floors_of, recycle_floors
from holdfast.plan.share import even_shares
from problems import problems
from schedules import make_problem

HOME = (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)


def test_recycle_routes_in_turn() -> None:
    """A dead worker's micro-batches go to its live peers one after the other; nobody else's move."""
    floors = recycle_floors(make_problem(3, 2, 4, dead="1.0"), is_coupled=False)
    assert [floor.queues for floor in floors] == [((0, 0, 0, 0, 0, 2, 0, 2, 2, 2, 2, 2), HOME), (HOME, HOME)]
    assert [floor.is_open for floor in floors] == [False, True]
    assert floors[1].limits == (6, 4, 0, 4, 6, 4)


def test_recycle_does_not_know_slow_workers() -> None:
    """A slow worker keeps all its micro-batches in ReCycle's modes: only a dead one is re-routed."""
    floors = recycle_floors(make_problem(3, 2, 4, dead="1.0", slow="2.0=0.01"), is_coupled=True)
    assert [floor.queues[0] for floor in floors] == [(0, 0, 0, 0, 0, 2, 0, 2, 2, 2, 2, 2)]


def test_only_the_surplus_of_a_slow_worker_moves() -> None:
    """A worker at half speed keeps its share, and what leaves it is spread over time and peers."""
    floors = floors_of(make_problem(3, 2, 4, slow="1.0=0.5"), 0.0)
    assert floors[0].queues == ((0, 0, 0, 0, 1, 0, 1, 2, 2, 2, 2, 2), HOME)
    assert not floors[0].is_open
    assert floors[-1].is_open
    assert floors[-1].limits == (5, 4, 2, 4, 5, 4)


@given(problems(microbatches=9), st.floats(0, 50))
def test_floors_fit_the_shares(problem: Problem, period: float) -> None:
    """Closed queues are the even shares with the fewest moves; open limits leave room for everything."""
    closed, *rest = floors_of(problem, period)
    total = problem.dp * problem.microbatches
    home = tuple(q // problem.microbatches for q in range(total))
    assert not closed.is_open
    for stage in range(problem.pp):
        shares = even_shares(problem, stage)
        queue = closed.queues[stage]
        assert [queue.count(pipeline) for pipeline in range(problem.dp)] == shares
        moved = sum(at != own for at, own in zip(queue, home, strict=True))
        assert moved == sum(max(0, problem.microbatches - share) for share in shares)
    for floor in rest:
        assert floor.is_open
        assert floor.queues == (home,) * problem.pp
        for stage in range(problem.pp):
            limits = floor.limits[stage :: problem.pp]
            assert sum(limits) >= total
            assert all(limits[dead] == 0 for dead in range(problem.dp) if dead not in problem.live(stage))


@pytest.mark.parametrize(("is_coupled", "expected"), [(False, (10, 12, 8)), (True, (10, 20, 0))])
def test_durations_are_costs_over_speed(is_coupled: bool, expected: tuple[float, ...]) -> None:
    """A dead worker has none; coupled, the whole backward counts as one."""
    problem = make_problem(2, 1, 1, costs=(Costs(5, 6, 4),), dead="0.0", slow="1.0=0.5")
    floor = recycle_floors(problem, is_coupled=is_coupled)[0]
    assert floor.durations == ((), expected)
    assert floor.is_coupled == is_coupled
