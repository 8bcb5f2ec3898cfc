"""A plan is told in a few figures and words, the same everywhere."""

from __future__ import annotations

import pytest

from holdfast.plan.grid import show
from holdfast.plan.planner import FaultFree, Plan
from holdfast.plan.problem import Worker
from holdfast.plan.roles import Move
from holdfast.plan.summary import Figure, say_changes, say_hit, summarize
from schedules import make_problem, timed_1f1b

PROBLEM = make_problem(dead="1.2")
PLAN = Plan(
    problem=PROBLEM,
    mode="naive",
    timed=timed_1f1b(PROBLEM),
    lower_bound=27.0,
    fault_free=FaultFree(one_f_one_b=27.0, zero_bubble=19.0),
)


def test_the_figures_of_a_plan() -> None:
    """Period and its gap, the job without faults twice, makespan, and where memory is needed most."""
    assert summarize(PLAN) == [
        Figure("period", "39", "44.4 % above the lower bound 27"),
        Figure("fault-free 1F1B", "27", "the plan takes 44.4 % longer"),
        Figure("fault-free zero-bubble", "19", "the plan takes 105.3 % longer"),
        Figure("makespan", "39", "from the first start to the last end"),
        Figure("in flight", "4", "micro-batches at most, on 0.0, 1.0, 2.0"),
    ]


def test_a_plan_at_its_bound_is_proven_optimal() -> None:
    """Also when the last digit of a sum differs."""
    timed = timed_1f1b(make_problem())
    fault_free = FaultFree(one_f_one_b=27.0, zero_bubble=27.0 * (1 + 1e-15))
    plan = Plan(
        problem=make_problem(), mode="adaptive", timed=timed, lower_bound=27.0 - 1e-12, fault_free=fault_free
    )
    period, plain, split, *_ = summarize(plan)
    assert period.remark == "proven optimal: the lower bound is 27"
    assert plain.remark == split.remark == "the plan is as fast"


@pytest.mark.parametrize(
    ("dead", "slow", "words"),
    [
        ("", "", "nobody slow or dead"),
        ("1.2 0.3", "", "0.3, 1.2 dead"),
        ("1.2", "0.1=0.5 2.0=0.25", "1.2 dead; 0.1 at x0.5, 2.0 at x0.25"),
        ("0.0 0.1 0.2 0.3 1.0 1.1 1.2", "", "7 workers dead"),
        ("", "0.0=0.5 0.1=0.5 0.2=0.5 0.3=0.5 1.0=0.5 1.1=0.5 1.2=0.5", "7 workers slow"),
    ],
)
def test_who_is_hit_is_said_in_words(dead: str, slow: str, words: str) -> None:
    """A few are named, many are counted."""
    assert say_hit(make_problem(dead=dead, slow=slow)) == words


def test_changes_name_the_micro_batches_of_those_hit_and_count_the_others() -> None:
    """Under a heading each; what did not happen has none."""
    assert say_changes(PLAN) == {
        "micro-batches that another worker does at one stage": ["1.2 to 0.2: 0 2 4", "1.2 to 2.2: 1 3 5"]
    }
    healthy = make_problem()
    moved = Plan(
        problem=healthy,
        mode="adaptive",
        timed=PLAN.timed,
        lower_bound=27.0,
        fault_free=PLAN.fault_free,
        moves=(
            Move(worker=Worker(0, 1), to=Worker(1, 2), size_bytes=2_500_000_000),
            Move(worker=Worker(0, 2), to=Worker(1, 3), size_bytes=0),
        ),
    )
    assert say_changes(moved) == {
        "workers that change their role": ["0.1 becomes 1.2, copying 2.5 GB", "0.2 becomes 1.3"],
        "micro-batches that another worker does at one stage": ["6 of healthy workers, to even out the load"],
    }


@pytest.mark.parametrize(
    ("time", "text"), [(27.0, "27"), (1 / 3, "0.333333"), (999999.4, "999999"), (1234567.8, "1,234,568")]
)
def test_times_are_shown_with_the_digits_that_matter(time: float, text: str) -> None:
    """Never in powers of ten that people would have to work out."""
    assert show(time) == text
