"""A search finds the same with the same seed, nothing worse than its first try, nothing below the bound."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from holdfast.plan.bounds import lower_bound, makespan_bound
from holdfast.plan.dispatch import dispatch
from holdfast.plan.draft import to_timed
from holdfast.plan.problem import Problem
from holdfast.plan.routing import floors_of
from holdfast.plan.search import ENOUGH, Goal, Task, changed, policies, search, value_of
from holdfast.plan.validate import validate
from instances import random_problem
from problems import problems
from schedules import make_problem

TIGHT = make_problem(dead="1.2", memory=(4, 3, 2, 1))
GOALS = st.sampled_from(("period", "makespan"))


def _task(problem: Problem, goal: Goal, drafts: int) -> Task:
    bound = lower_bound(problem) if goal == "period" else makespan_bound(problem)
    return Task(goal, bound, drafts * 3 * problem.dp * problem.pp * problem.microbatches)


@settings(max_examples=40)
@given(problems(), GOALS, st.integers(0, 2**32))
def test_what_is_found_is_valid_and_worth_its_value(problem: Problem, goal: Goal, seed: int) -> None:
    """The value is that of the draft, not below the bound, and the same seed finds the same again."""
    task = _task(problem, goal, 20)
    floors = floors_of(problem, task.bound)
    found = search(floors, task, random.Random(seed))
    assert found.value == value_of(problem, found.placed, goal)
    assert found.value >= task.bound / (1 + 1e-9)
    assert validate(problem, to_timed(problem, found.placed, is_coupled=False)) == []
    assert search(floors, task, random.Random(seed)) == found


@settings(max_examples=40)
@given(problems(), GOALS)
def test_trying_is_never_worse_than_the_one_draft_without_effort(problem: Problem, goal: Goal) -> None:
    """Without effort the last floor is dispatched once by the first rules; any search tries that too.

    Unless it stops before, because something else is close enough to the bound.
    """
    nothing = _task(problem, goal, 0)
    floors = floors_of(problem, nothing.bound)
    once = search(floors, nothing, random.Random(0))
    assert once.placed == dispatch(floors[-1], next(policies(problem)))
    found = search(floors, _task(problem, goal, 12), random.Random(0))
    assert found.value <= max(once.value, nothing.bound * ENOUGH)


@pytest.mark.parametrize("bound", [27.0, 27.0 / ENOUGH])
def test_a_search_stops_at_the_bound(bound: float) -> None:
    """Where the first draft of the first floor is close enough, it is the answer, whatever the effort."""
    problem = make_problem(dead="1.2")
    floors = floors_of(problem, bound)
    first = dispatch(floors[0], next(policies(problem)))
    rng = random.Random(0)
    assert search(floors, Task("period", bound, 10**12), rng) == (27.0, first)
    assert rng.getstate() == random.Random(0).getstate()


def test_annealing_goes_below_what_the_rules_reach() -> None:
    """Where memory is tight, changing the rules finds what none of them finds alone."""
    problem = random_problem(48)
    bound = lower_bound(problem)
    floors = floors_of(problem, bound)
    by_rules = [
        value_of(problem, dispatch(floor, policy), "period")
        for floor in floors
        for policy in policies(problem)
    ]
    found = search(floors, Task("period", bound, 200_000), random.Random(0))
    assert min(by_rules) > found.value


def test_rules_start_from_full_depth_and_are_all_different() -> None:
    """Every rule may use all of the memory, and none is tried twice."""
    rules = list(policies(TIGHT))
    assert len(set(rules)) == len(rules) == 40
    assert {rule.depth for rule in rules} == {(4, 3, 2, 1)}


@given(problems(), st.randoms(use_true_random=False))
def test_a_change_touches_one_rule_and_keeps_the_depth(problem: Problem, rng: random.Random) -> None:
    """One field changes, the policy it came from does not, and depth stays between 1 and the cap."""
    before = next(policies(problem))
    copy = asdict(before)
    after = before
    for _ in range(20):
        last, after = after, changed(problem, after, rng)
        differing = [name for name, value in asdict(after).items() if value != getattr(last, name)]
        assert len(differing) <= 1
        assert all(1 <= depth <= problem.cap(stage) for stage, depth in enumerate(after.depth))
        assert list(map(len, (after.forward_rank, after.backlog))) == [
            problem.dp * problem.microbatches,
            problem.pp,
        ]
    assert asdict(before) == copy
