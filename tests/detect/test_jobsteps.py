"""JobSteps: the steps of a job out of those of its ranks."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detect.jobsteps import JobStep, JobSteps
from holdfast.telemetry import Step, StepFlag


def a_step(rank: int, step: int, duration_s: float = 1.0, **more: Any) -> Step:
    """Return a step that ended when its number says."""
    return Step(rank=rank, step=step, ended_s=float(step), duration_s=duration_s, **more)


def numbers(found: list[JobStep]) -> list[int]:
    """Return which steps they are."""
    return [each.step for each in found]


def test_a_step_is_told_when_all_have_finished_it() -> None:
    """Not before the last rank has; then with the median of their times."""
    jobs = JobSteps()
    jobs.take([a_step(rank, 0) for rank in range(3)])
    assert jobs.take([a_step(0, 1, 1.0), a_step(1, 1, 1.2)]) == []
    (told,) = jobs.take([a_step(2, 1, 1.1)])
    assert (told.step, told.duration_s, told.ended_s, told.work, told.is_typical) == (1, 1.1, 1.0, None, True)
    assert [part.rank for part in told.parts] == [0, 1, 2]
    assert jobs.ranks == [0, 1, 2]


def test_the_first_step_which_nobody_timed_is_not_told() -> None:
    """Its beginning is not known."""
    assert JobSteps().take([a_step(0, 0, 0.0), a_step(1, 0, 0.0)]) == []


@given(st.integers(1, 6), st.integers(0, 2**16))
def test_steps_are_told_in_order_and_once_whatever_comes(ranks: int, seed: int) -> None:
    """Batches may be late, doubled, and of one rank or another."""
    chance = random.Random(seed)
    steps = [a_step(rank, number) for number in range(40) for rank in range(ranks)]
    steps += chance.sample(steps, 20 * ranks)
    steps.sort(key=lambda step: step.step + chance.uniform(0, 8))
    jobs, told = JobSteps(), []
    while steps:
        count = chance.randrange(1, 12)
        told += numbers(jobs.take(steps[:count]))
        steps = steps[count:]
    assert told == sorted(set(told))
    assert told[-1] == 39


def test_a_silent_rank_is_not_waited_for_for_ever() -> None:
    """After some steps the others are told without it, and from then on at once."""
    jobs = JobSteps()
    jobs.take([a_step(rank, number) for number in range(10) for rank in range(3)])
    told = [numbers(jobs.take([a_step(0, number), a_step(1, number)])) for number in range(10, 200)]
    assert told[0] == []
    assert told[-1] == [199]
    assert [number for each in told for number in each] == list(range(10, 200))


def test_most_ranks_may_fall_silent() -> None:
    """The one that goes on is told of."""
    jobs = JobSteps()
    jobs.take([a_step(rank, number) for number in range(10) for rank in range(8)])
    assert numbers(jobs.take([a_step(5, number) for number in range(10, 100)])) == list(range(10, 100))


def test_a_rank_that_comes_back_is_waited_for_again() -> None:
    """What it missed is not told a second time."""
    jobs = JobSteps()
    jobs.take([a_step(rank, number) for number in range(5) for rank in range(2)])
    jobs.take([a_step(0, number) for number in range(5, 100)])
    assert jobs.take([a_step(1, number) for number in range(5, 100)]) == []
    assert jobs.take([a_step(0, 100), a_step(1, 100)])[0].step == 100
    assert jobs.take([a_step(0, 101)]) == []
    assert numbers(jobs.take([a_step(1, 101)])) == [101]


def test_ranks_whose_numbers_are_a_little_apart_are_joined() -> None:
    """A rank that began to count later is joined with its neighbours' steps: they last as long."""
    jobs, told = JobSteps(), []
    for number in range(30):
        told += jobs.take([a_step(0, number + 2), a_step(1, number), a_step(2, number + 1)])
    assert numbers(told) == list(range(30))


def test_a_rank_whose_numbers_are_far_behind_holds_nothing_up() -> None:
    """Whoever joined late and counts from 0 is not waited for, and does not mix up the order."""
    jobs = JobSteps()
    jobs.take([a_step(0, number) for number in range(500)])
    told = [numbers(jobs.take([a_step(0, 500 + n), a_step(1, n)])) for n in range(50)]
    assert told == [[500 + n] for n in range(50)]


def test_another_attempt_starts_afresh() -> None:
    """Numbers begin anew; what comes late of the attempt before counts for nothing."""
    jobs = JobSteps()
    jobs.take([a_step(rank, number) for number in range(50) for rank in range(2)])
    assert jobs.take([a_step(0, 0, attempt=1)])[0].step == 0
    assert jobs.ranks == [0]
    assert jobs.take([a_step(1, 60), a_step(0, 60)]) == []
    assert numbers(jobs.take([a_step(0, 1, attempt=1), a_step(1, 1, attempt=1)])) == [1]


def test_steps_before_a_change_of_cycle_are_not_told_after_it() -> None:
    """A rank that takes a step to be something else does not compare with what it finished before."""
    jobs = JobSteps()
    jobs.take([a_step(rank, 0, cycle=1) for rank in range(2)])
    jobs.take([a_step(0, number, cycle=1) for number in range(1, 5)])
    assert jobs.cycle == 1
    late = [a_step(1, number, cycle=1) for number in range(1, 4)] + [a_step(1, 4, cycle=2)]
    assert numbers(jobs.take(late)) == [4]
    assert jobs.cycle == 2


def test_ranks_may_be_in_other_cycles_than_others() -> None:
    """Each counts for itself; one that has had more of them, and died, does not make the rest stale."""
    jobs = JobSteps()
    jobs.take([a_step(0, 0, cycle=5), a_step(1, 0, cycle=1), a_step(2, 0, cycle=2)])
    told = jobs.take([a_step(rank, number, cycle=rank) for number in range(1, 100) for rank in (1, 2)])
    assert 99 in numbers(told)


@pytest.mark.parametrize(
    "flag", [StepFlag.EVALUATION, StepFlag.CHECKPOINT, StepFlag.SKIPPED, StepFlag.FIRST, StepFlag.COMPILE]
)
def test_a_step_with_something_else_in_it_is_not_typical(flag: StepFlag) -> None:
    """One rank is enough: the others wait for it."""
    jobs = JobSteps()
    told = jobs.take([a_step(0, 1), a_step(1, 1, flags=flag), a_step(0, 2), a_step(1, 2)])
    assert [each.is_typical for each in told] == [False, True]


def test_what_was_not_measured_is_typical_all_the_same() -> None:
    """Its time is known, only its waiting is not."""
    assert JobSteps().take([a_step(0, 1, flags=StepFlag.UNMEASURED)])[0].is_typical


def test_what_most_steps_have_in_them_is_typical() -> None:
    """A job that saves in every step is judged by such steps, as soon as that is known."""
    told = JobSteps().take([a_step(0, number, flags=StepFlag.CHECKPOINT) for number in range(60)])
    assert [each.is_typical for each in told[:10]] == [False] * 10
    assert [each.is_typical for each in told[20:]] == [True] * 40


def test_every_second_step_is_not_most() -> None:
    """Half of them are left out for good."""
    steps = [a_step(0, number, flags=StepFlag.EVALUATION * (number % 2)) for number in range(60)]
    assert [each.is_typical for each in JobSteps().take(steps)] == [number % 2 == 0 for number in range(60)]


def test_work_is_that_of_the_usual_rank() -> None:
    """Neither one rank's longer input nor how many ranks there are changes it."""
    told = JobSteps().take([a_step(rank, 1, work=100) for rank in range(3)] + [a_step(3, 1, work=900)])
    assert [each.work for each in told] == [100.0]
    assert JobSteps().take([a_step(0, 1, work=100), a_step(1, 1)])[0].work is None


def test_memory_is_bounded_when_one_rank_runs_ahead() -> None:
    """What waits for a rank that never comes is given up."""
    jobs = JobSteps()
    jobs.take([a_step(rank, 0) for rank in range(2)])
    for number in range(1, 100_000):
        jobs.take([a_step(0, number)])
    assert len(jobs._open) <= 65
