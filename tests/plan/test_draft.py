"""Drafts are shifted as far as they go without ending later, and become schedules that time the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.plan.bounds import lower_bound
from holdfast.plan.dispatch import FORWARD, INPUT, WEIGHT, Placed, dispatch
from holdfast.plan.draft import last_ends, latest_starts, makespan_of, settle, shifted, to_timed
from holdfast.plan.problem import Problem
from holdfast.plan.routing import floors_of, recycle_floors
from holdfast.plan.search import changed, policies, value_of
from holdfast.plan.timing import Timed, time_schedule
from holdfast.plan.validate import validate
from problems import problems
from schedules import make_problem

BY_HAND: list[Placed] = [
    (0, FORWARD, 0, 0.0, 1.0),
    (1, FORWARD, 0, 1.5, 2.5),
    (1, INPUT, 0, 2.5, 3.5),
    (1, WEIGHT, 0, 3.5, 4.5),
    (0, INPUT, 0, 4.0, 5.0),
    (0, WEIGHT, 0, 5.0, 6.0),
]
"""One micro-batch through two stages, with transfers of 0.5."""


def test_a_draft_by_hand() -> None:
    """One micro-batch through two stages leaves nothing to shift, and only stage 0 may join its backward."""
    problem = make_problem(1, 2, 1, comm=0.5)
    assert makespan_of(BY_HAND) == 6
    assert last_ends(problem, BY_HAND) == [6, 4.5]
    assert latest_starts(problem, BY_HAND, [6, 4.5]) == [0, 1.5]
    assert shifted(problem, BY_HAND, [0, 1.5]) == BY_HAND
    timed = to_timed(problem, BY_HAND, is_coupled=False)
    assert str(timed.schedule) == ("dp 1 pp 2 microbatches 1\n0.0: 0F0.0 0B0.0\n0.1: 1F0.0 1I0.0 1W0.0\n")
    assert (timed.starts, timed.ends) == (((0, 4), (1.5, 2.5, 3.5)), ((1, 6), (2.5, 3.5, 4.5)))


def test_a_backward_is_joined_where_the_gradient_is_not_missed() -> None:
    """If the stage before is busy until the weights are done too, I and W are one B."""
    problem = make_problem(1, 2, 2)
    placed: list[Placed] = [
        (0, FORWARD, 0, 0.0, 1.0),
        (0, FORWARD, 1, 1.0, 2.0),
        (1, FORWARD, 0, 1.0, 2.0),
        (1, INPUT, 0, 2.0, 3.0),
        (1, WEIGHT, 0, 3.0, 4.0),
        (1, FORWARD, 1, 4.0, 5.0),
        (0, INPUT, 0, 4.0, 5.0),
        (0, WEIGHT, 0, 5.0, 6.0),
        (1, INPUT, 1, 5.0, 6.0),
        (1, WEIGHT, 1, 6.0, 7.0),
        (0, INPUT, 1, 6.0, 7.0),
        (0, WEIGHT, 1, 7.0, 8.0),
    ]
    assert str(to_timed(problem, placed, is_coupled=False).schedule).splitlines()[1:] == [
        "0.0: 0F0.0 0F0.1 0B0.0 0B0.1",
        "0.1: 1F0.0 1B0.0 1F0.1 1I0.1 1W0.1",
    ]


@st.composite
def _drafts(draw: st.DrawFn) -> tuple[Problem, list[Placed]]:
    problem = draw(problems())
    rng = draw(st.randoms(use_true_random=False))
    floors = [*floors_of(problem, lower_bound(problem)), *recycle_floors(problem, is_coupled=False)]
    policy = rng.choice(list(policies(problem)))
    for _ in range(rng.randrange(8)):
        policy = changed(problem, policy, rng)
    return problem, dispatch(rng.choice(floors), policy)


@settings(max_examples=80)
@given(_drafts())
def test_every_stage_starts_as_late_as_it_can(draft: tuple[Problem, list[Placed]]) -> None:
    """Shifted to its latest starts no stage ends later; a little later still, and one would."""
    problem, placed = draft
    ends = last_ends(problem, placed)
    firsts = latest_starts(problem, placed, ends)
    moved = shifted(problem, placed, firsts)
    timed = settle(problem, placed, is_coupled=False)
    assert timed == to_timed(problem, moved, is_coupled=False)
    assert validate(problem, timed) == []
    assert last_ends(problem, moved) == pytest.approx(ends)
    assert timed.period == pytest.approx(value_of(problem, placed, "period"))
    assert timed.period <= to_timed(problem, placed, is_coupled=False).period * (1 + 1e-9)
    for stage in range(problem.pp):
        assert min(row[0] for row in timed.starts[stage :: problem.pp] if row) == pytest.approx(firsts[stage])
        later = [first + 0.01 * (place == stage) for place, first in enumerate(firsts)]
        assert max(map(float.__sub__, last_ends(problem, shifted(problem, placed, later)), ends)) > 0.005


@settings(max_examples=80)
@given(_drafts(), st.booleans())
def test_the_schedule_of_a_draft_has_its_times(draft: tuple[Problem, list[Placed]], is_late: bool) -> None:
    """A draft's times are the earliest for its orders: joining backwards delays nobody."""
    problem, placed = draft
    firsts = [0.0] * problem.pp
    if is_late:
        firsts = latest_starts(problem, placed, last_ends(problem, placed))
        placed = shifted(problem, placed, firsts)
    timed = to_timed(problem, placed, is_coupled=False)
    again = time_schedule(problem, timed.schedule, firsts)
    assert _flat(again.starts) == pytest.approx(_flat(timed.starts))
    assert _flat(again.ends) == pytest.approx(_flat(timed.ends))
    assert timed.makespan == pytest.approx(makespan_of(sorted(placed, key=lambda each: each[3])))


def _flat(rows: tuple[tuple[float, ...], ...]) -> list[float]:
    return [time for row in rows for time in row]


def test_a_coupled_draft_has_whole_backwards_only() -> None:
    """In ReCycle's plain mode every backward is one B."""
    problem = make_problem(2, 2, 2, dead="0.1")
    floor = recycle_floors(problem, is_coupled=True)[0]
    timed: Timed = to_timed(problem, dispatch(floor, next(policies(problem))), is_coupled=True)
    assert sorted({op.kind for order in timed.schedule.orders for op in order}) == ["B", "F"]
    assert validate(problem, timed) == []
