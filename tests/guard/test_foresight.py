"""Plans that are there before they are needed: the same as those made at once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from holdfast.guard.foresight import Foresight
from holdfast.plan.ahead import likely
from holdfast.plan.choose import choose
from holdfast.plan.problem import Problem

pytestmark = pytest.mark.processes
PROBLEM = Problem(dp=3, pp=2, microbatches=4)


@pytest.fixture
def foresight() -> Iterator[Foresight]:
    """One whose process ends with the test."""
    made = Foresight()
    yield made
    made.close()


def _ready(foresight: Foresight, problem: Problem) -> str:
    """Ask until the plan was there before."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        schedule = foresight.plan(problem, "zero_bubble")
        if foresight.was_ready:
            return str(schedule)
        time.sleep(0.05)
    raise AssertionError("no plan was ready in time")


def test_the_next_failure_finds_its_plan_ready_and_it_is_the_usual_one(foresight: Foresight) -> None:
    """The first has to be made; what follows from it is then there."""
    foresight.plan(PROBLEM, "zero_bubble")
    assert not foresight.was_ready
    time.sleep(0.2)
    for problem in list(likely(PROBLEM))[:3]:
        assert _ready(foresight, problem) == str(choose(problem, fault_free="zero_bubble"))


def test_without_its_process_plans_are_made_when_they_are_needed(foresight: Foresight) -> None:
    """As before; there is nothing to be waited for."""
    foresight.plan(PROBLEM, "zero_bubble")
    foresight.close()
    dead = next(likely(PROBLEM))
    assert str(foresight.plan(dead, "zero_bubble")) == str(choose(dead, fault_free="zero_bubble"))
