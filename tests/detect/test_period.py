"""Step length from the kinds of calls alone: whole patterns, never a part of one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detect.period import find_period, step_times

FALCON = [3, 2, 3, 2, 3, 2, 3, 2, 6, 3, 2, 3, 2, 3, 2, 3, 2]
"""A data-parallel job on four GPUs; its period is 17."""


def _has_inner_period(pattern: list[int]) -> bool:
    length = len(pattern)
    return any(
        length % part == 0 and pattern == pattern[:part] * (length // part) for part in range(1, length)
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=120), st.integers(4, 12))
def test_a_pattern_that_is_repeated_is_found_whole(pattern: list[int], repeats: int) -> None:
    """Exactly its length, or that of what it repeats itself."""
    found = find_period(pattern * repeats)
    assert found is not None
    assert pattern * repeats == (pattern * repeats)[: found.length] * repeats * (len(pattern) // found.length)
    assert len(pattern) % found.length == 0
    assert not _has_inner_period((pattern * repeats)[: found.length])


@pytest.mark.parametrize("repeats", [4, 10, 20, 40])
def test_the_published_example_has_its_period(repeats: int) -> None:
    """Four steps are enough, where the biased estimator needs twenty."""
    found = find_period(FALCON * repeats)
    assert found is not None
    assert (found.length, found.offset) == (17, 0)


@pytest.mark.parametrize("inner", [20, 60, 120, 500])
def test_a_pattern_inside_the_step_is_not_the_step(inner: int) -> None:
    """Many all-gathers and reduce-scatters, then one all-reduce: never a period of 2."""
    found = find_period((["all_gather", "reduce_scatter"] * inner + ["all_reduce"]) * 6)
    assert found is not None
    assert found.length == 2 * inner + 1


@given(st.lists(st.integers(10, 19), max_size=40), st.integers(0, 1000))
def test_calls_before_the_cycle_are_skipped(warm_up: list[int], seed: int) -> None:
    """The period is that of the steps, and begins after them."""
    found = find_period([*warm_up, *(FALCON * 30)])
    assert found is not None
    assert found.length == 17
    assert len(warm_up) - 17 < found.offset <= len(warm_up)


def test_evaluations_at_uneven_distances_do_not_hide_the_steps() -> None:
    """Steps with one inside are left out; the others are as long as they are."""
    rng = random.Random(1)
    kinds: list[object] = []
    for _ in range(12):
        kinds += FALCON * rng.randrange(8, 30)
        kinds += ["broadcast", "gather"] * 5
    times = [0.1 * number for number in range(len(kinds))]
    steps = step_times(kinds, times)
    assert len(steps) > 100
    assert {round(step.duration_s, 6) for step in steps} == {1.7}


@given(st.integers(0, 10_000))
def test_calls_without_a_pattern_have_no_period(seed: int) -> None:
    """Random kinds repeat nothing for long."""
    rng = random.Random(seed)
    assert find_period([rng.randrange(6) for _ in range(400)]) is None


@pytest.mark.parametrize("kinds", [[], [1], [1, 2], [1, 2, 1, 2, 1]])
def test_too_few_calls_have_no_period(kinds: list[int]) -> None:
    """Three steps have to be seen; a kind that is always the same is a step of one call."""
    found = find_period(kinds)
    assert found is None or found.length * 3 <= len(kinds)
    assert step_times(kinds, [float(number) for number in range(len(kinds))]) == []


def test_steps_are_timed_from_a_call_to_the_same_call_later() -> None:
    """A step that takes longer is one step that takes longer."""
    times, now_s = [], 0.0
    for step in range(20):
        for _ in FALCON:
            times.append(now_s)
            now_s += 0.2 if step == 7 else 0.1
    durations = [round(step.duration_s, 6) for step in step_times(FALCON * 20, times)]
    assert durations == [3.4 if step == 7 else 1.7 for step in range(19)]
