"""Two schedules of one job are compared by who does what, then by order."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import InputError
from holdfast.plan.diff import Difference, Rerouted, compare, rerouted_of, say_rerouted
from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Worker
from schedules import make_problem, one_f_one_b


def test_equal_schedules_have_no_difference() -> None:
    """And say so."""
    schedule = one_f_one_b(make_problem())
    assert compare(schedule, schedule) == Difference(rerouted=(), reordered=())
    assert str(compare(schedule, schedule)) == "no difference\n"


def test_a_dead_workers_micro_batches_are_named_with_who_takes_them() -> None:
    """By stage and taker; whoever keeps its micro-batches and its order is not mentioned."""
    before, after = one_f_one_b(make_problem()), one_f_one_b(make_problem(dead="1.2"))
    difference = compare(before, after)
    assert difference.rerouted[0] == Rerouted(
        pipeline=1, microbatch=0, before=Worker(1, 2), after=Worker(0, 2)
    )
    assert str(difference) == "1.2 to 0.2: 0 2 4\n1.2 to 2.2: 1 3 5\n"
    assert difference.rerouted == rerouted_of(after)


def test_a_change_between_two_re_routings_names_the_home_pipeline() -> None:
    """0.2 loses what it did for pipeline 1, and its own; only the former needs its pipeline said."""
    before, after = one_f_one_b(make_problem(dead="1.2")), one_f_one_b(make_problem(dead="0.2 1.2"))
    assert str(compare(before, after)) == "0.2 to 2.2: 0 1 2 3 4 5 1.0 1.2 1.4\n"


def test_the_way_back_is_a_difference_too() -> None:
    """A worker that returns takes back what is its own."""
    before, after = one_f_one_b(make_problem(dead="1.2")), one_f_one_b(make_problem())
    assert str(compare(before, after)) == "0.2 to 1.2: 1.0 1.2 1.4\n2.2 to 1.2: 1.1 1.3 1.5\n"


def test_workers_that_only_changed_their_order_are_listed() -> None:
    """Split backward is another order of the same micro-batches."""
    problem = make_problem(2, 2, 3)
    before = one_f_one_b(problem)
    after = list(before.orders)
    after[1] = one_f_one_b(problem, is_split=True).orders[1]
    changed = msgspec.structs.replace(before, orders=tuple(after))
    assert compare(before, changed) == Difference(rerouted=(), reordered=(Worker(0, 1),))
    assert str(compare(before, changed)) == "another order on 0.1\n"


def test_many_changes_are_summed_up_by_the_worker_that_lost_them() -> None:
    """A few lines stay readable; hundreds become one per worker."""
    rerouted = rerouted_of(one_f_one_b(make_problem(8, 2, 14, dead="3.0 4.1")))
    assert len(say_rerouted(rerouted)) == 14
    assert say_rerouted(rerouted, most=13) == ["3.0: 14 to 7 others", "4.1: 14 to 7 others"]


@pytest.mark.parametrize("name", ["dp", "pp", "microbatches"])
def test_schedules_of_different_jobs_cannot_be_compared(name: str) -> None:
    """The message names what differs."""
    one = one_f_one_b(make_problem(2, 2, 2))
    other = msgspec.structs.replace(one, **{name: 3})
    with pytest.raises(InputError, match=f"have {name} 2 and 3, expected two of the same job"):
        compare(one, other)


def test_schedules_with_different_work_cannot_be_compared() -> None:
    """Something that only one of them does is named."""
    whole = one_f_one_b(make_problem(1, 1, 2))
    part = Schedule(dp=1, pp=1, microbatches=2, orders=(whole.orders[0][:-2],))
    with pytest.raises(InputError, match=r"0F0\.1 is in one schedule only"):
        compare(whole, part)
