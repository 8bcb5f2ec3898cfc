"""Runs of a series: the current stretch is found, outliers begin none, and nothing breaks the sums."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.detect.runs import Run, Runs

NOISE = 0.02


def best_of(values: list[float], *, noise: float = NOISE, memory: float = 0.0) -> Run:
    """Return the most probable run after all values."""
    runs = Runs(values[0], noise)
    for at, value in enumerate(values):
        runs.update(value, at=at, memory=memory)
    return runs.best


def normal(count: int, level: float = 0.0, *, seed: int = 0) -> list[float]:
    """Return values around a level."""
    return [float(each) for each in np.random.default_rng(seed).normal(level, NOISE, count)]


def assert_sound(run: Run) -> None:
    """Fail if a run has a number that is none."""
    assert all(map(math.isfinite, (run.weight, run.mean, run.spread))), run
    assert run.weight >= 0, run
    assert run.spread > 0, run


def test_one_level_is_one_run() -> None:
    """It began with the first value, and all values tell its level."""
    run = best_of(normal(200))
    assert run.start == 0
    assert run.weight == pytest.approx(200, abs=4)
    assert run.mean == pytest.approx(0, abs=0.005)
    assert run.spread == pytest.approx(NOISE, rel=0.15)


@pytest.mark.parametrize("level", [0.1, -0.1, 0.5, 2.0, -2.0])
def test_a_new_level_is_a_new_run(level: float) -> None:
    """It begins where the level changed, give or take a step."""
    run = best_of(normal(100) + normal(30, level, seed=1))
    assert run.start == pytest.approx(100, abs=1)
    assert run.mean == pytest.approx(level, abs=0.02)


def test_equal_values_are_one_run() -> None:
    """Even without any noise at all."""
    assert best_of([3.0] * 150).start == 0


@pytest.mark.parametrize("count", [1, 2])
def test_outliers_begin_no_run_and_teach_little(count: int) -> None:
    """One long step, or two."""
    run = best_of(normal(100) + [1.1] * count + normal(20, seed=1))
    assert (run.start, round(run.mean, 2)) == (0, 0.0)
    assert run.weight == pytest.approx(120, abs=4)


def test_correlated_values_need_a_stronger_change() -> None:
    """What lies apart together for a few steps is no run if neighbours depend on each other."""
    values = normal(100) + normal(4, 0.09, seed=1)
    assert best_of(values).start == pytest.approx(100, abs=1)
    assert best_of(values, memory=0.6).start == 0


def test_a_shift_of_all_values_changes_nothing() -> None:
    """Only the mean moves with them."""
    values = normal(100) + normal(30, 0.3, seed=1)
    here, there = best_of(values), best_of([value + 11.5 for value in values])
    assert (there.start, round(there.mean - here.mean, 6)) == (here.start, 11.5)


@given(
    st.lists(
        st.one_of(st.floats(1e-300, 1e300), st.sampled_from([5e-324, 1e-300, 1e-9, 1.0, 1e5, 1e300])),
        min_size=1,
        max_size=150,
    ),
    st.floats(0, 0.6),
)
@settings(max_examples=60)
def test_no_time_breaks_the_sums(times: list[float], memory: float) -> None:
    """From the smallest time there is to 1e300 seconds, in any order."""
    runs = Runs(math.log(times[0]), NOISE)
    for at, time in enumerate(times):
        runs.update(math.log(time), at=at, memory=memory)
        assert_sound(runs.best)
        assert math.isfinite(runs.best.mean)
        assert 0 <= runs.best.start <= at


def test_memory_is_bounded() -> None:
    """After 50,000 values of many levels it has as many numbers as after 200, and the best run is right."""
    rng = np.random.default_rng(5)
    levels = np.repeat(rng.normal(0, 0.3, 500), 100)
    values = levels + rng.normal(0, NOISE, 50_000)
    runs, sizes = Runs(float(values[0]), NOISE), []
    for at, value in enumerate(values.tolist()):
        runs.update(value, at=at)
        if at in (200, 49_999):
            sizes.append(sum(sys.getsizeof(each) for each in vars(runs).values()))
    assert sizes[0] == sizes[1]
    assert runs.best.mean == pytest.approx(levels[-1], abs=0.02)
    assert runs.best.start == pytest.approx(49_900, abs=2)
