"""profile_of and profiles_of: what a rank's steps were made of."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.diagnose.profiles import Profile, is_typical, profile_of, profiles_of
from holdfast.telemetry import Step, StepFlag


def a_step(number: int, duration_s: float = 1.0, **more: Any) -> Step:
    """Return a step of rank 3."""
    return Step(rank=3, step=number, ended_s=0.0, duration_s=duration_s, **more)


def test_a_profile_is_the_mean_of_the_steps() -> None:
    """Of every part; and how sure its own time is."""
    steps = [
        a_step(1, 1.0, wait_s=0.2, data_s=0.1, gc_s=0.0, save_s=0.02, cpu_s=0.5, work=10),
        a_step(2, 3.0, wait_s=1.0, data_s=0.3, gc_s=0.4, save_s=0.0, cpu_s=1.5, work=30),
    ]
    profile = profile_of(steps)
    assert profile is not None
    assert (profile.rank, profile.steps) == (3, 2)
    assert profile.duration_s == pytest.approx(2.0)
    assert profile.own_s == pytest.approx(1.4)
    assert profile.compute_s == pytest.approx(1.4 - 0.2 - 0.2 - 0.01)
    assert (profile.cpu_s, profile.work) == (1.0, 20.0)
    assert profile.error_s == pytest.approx(0.6)


def test_a_rank_that_is_stopped_in_every_third_step_is_slow() -> None:
    """A mean shows what a median would hide."""
    profile = profile_of([a_step(number, 4.0 if number % 3 == 0 else 1.0) for number in range(30)])
    assert profile is not None
    assert profile.own_s == pytest.approx(2.0)


@pytest.mark.parametrize(
    "flag", [StepFlag.EVALUATION, StepFlag.CHECKPOINT, StepFlag.SKIPPED, StepFlag.FIRST, StepFlag.COMPILE]
)
def test_steps_with_something_else_in_them_are_left_out(flag: StepFlag) -> None:
    """They say nothing about the usual ones; but where all are so, that is what a step is."""
    odd = [a_step(number, 60.0, flags=flag) for number in range(5)]
    assert not is_typical(odd[0])
    mixed, alone = profile_of([*odd, a_step(6)]), profile_of(odd)
    assert mixed is not None
    assert (mixed.steps, mixed.duration_s) == (1, 1.0)
    assert alone is not None
    assert (alone.steps, alone.duration_s) == (5, 60.0)


def test_steps_whose_waiting_was_not_measured_are_left_out() -> None:
    """They would seem to be all the rank's own; where none was measured, they are what there is."""
    blind = [a_step(number, flags=StepFlag.UNMEASURED) for number in range(9)]
    some = profile_of([*blind, a_step(9, wait_s=0.7)])
    assert some is not None
    assert some.own_s == pytest.approx(0.3)
    none = profile_of(blind)
    assert none is not None
    assert none.own_s == 1.0


def test_steps_without_a_time_tell_nothing() -> None:
    """The first step of a process has none."""
    assert profile_of([]) is None
    assert profile_of([a_step(0, 0.0)]) is None
    assert profiles_of({3: [a_step(0, 0.0)]}, since=0, until=9) == {}


def test_a_window_has_its_first_step_and_not_its_last() -> None:
    """From one number on until before another."""
    steps = {3: [a_step(number, 1.0 + number) for number in range(10)]}
    found = profiles_of(steps, since=4, until=6)
    assert found[3].steps == 2
    assert found[3].duration_s == pytest.approx(5.5)


def test_own_time_is_never_negative() -> None:
    """Clocks round: waiting may seem longer than the step."""
    profile = Profile(
        rank=0, steps=1, duration_s=1.0, wait_s=1.1, data_s=0.2, gc_s=0, save_s=0, cpu_s=0, work=0
    )
    assert profile.own_s == 0.0
    assert profile.compute_s == 0.0
