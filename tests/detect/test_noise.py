"""The noise of a series is that of its steps, whatever its level does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.detect.noise import Noise

FLOOR = 0.003


def noise_of(values: list[float]) -> Noise:
    """Return what is known after all values."""
    noise = Noise()
    for value in values:
        noise.add(value)
    return noise


def normal(count: int, scale: float, *, seed: int = 0) -> list[float]:
    """Return independent values around 0."""
    return [float(each) for each in np.random.default_rng(seed).normal(0, scale, count)]


def correlated(count: int, memory: float, *, seed: int = 0) -> list[float]:
    """Return values of standard deviation 0.02, of which neighbours depend on each other."""
    values, last = [], 0.0
    for each in normal(count, 0.02 * math.sqrt(1 - memory**2), seed=seed):
        last = memory * last + each
        values.append(last)
    return values


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6])
def test_five_values_say_something(count: int) -> None:
    """Fewer say nothing, and then the noise is the least there is."""
    noise = noise_of(normal(count, 0.1))
    assert noise.is_known == (count >= 5)
    assert noise.scale > FLOOR if noise.is_known else noise.scale == FLOOR


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.3])
def test_the_scale_is_the_standard_deviation(scale: float) -> None:
    """Within a sixth, of independent values."""
    noise = noise_of(normal(400, scale))
    assert noise.scale == pytest.approx(scale, rel=1 / 6)
    assert noise.memory < 0.2


def test_equal_values_have_the_least_noise() -> None:
    """Clocks and rounding make for some, and there is nothing to remember."""
    noise = noise_of([1.5] * 50)
    assert (noise.scale, noise.memory) == (FLOOR, 0.0)


@pytest.mark.parametrize("spoilt", [[50], [50, 51], list(range(20, 400, 30))])
def test_outliers_add_hardly_any_noise(spoilt: list[int]) -> None:
    """Nor do they hide it."""
    values = normal(400, 0.02)
    for index in spoilt:
        values[index] += 1.1
    assert noise_of(values).scale == pytest.approx(0.02, rel=0.25)


@pytest.mark.parametrize("apart", [0.1, 1.1, -3.0])
def test_a_new_level_adds_hardly_any_noise(apart: float) -> None:
    """It spoils one difference."""
    values = normal(200, 0.02) + [value + apart for value in normal(200, 0.02, seed=1)]
    assert noise_of(values).scale == pytest.approx(0.02, rel=1 / 6)


def test_correlation_of_neighbours_is_seen() -> None:
    """And the scale is then that of the values, not of their differences."""
    noise = noise_of(correlated(400, 0.5))
    assert noise.memory == pytest.approx(0.5, abs=0.15)
    assert noise.scale == pytest.approx(0.02, rel=0.25)


def test_of_few_values_no_correlation_is_believed() -> None:
    """Ten of them give next to none."""
    assert noise_of(correlated(10, 0.6)).memory < 0.05


def test_a_shift_of_all_values_changes_nothing() -> None:
    """Only differences count."""
    values = normal(300, 0.02)
    here, there = noise_of(values), noise_of([value - 20.7 for value in values])
    assert (there.scale, there.memory) == pytest.approx((here.scale, here.memory), rel=1e-6)


def test_rounding_has_no_correlation() -> None:
    """Values that differ in their last bit alone are equal."""
    steps = np.cumsum(np.random.default_rng(0).normal(0, 1e-15, 400))
    assert noise_of([1.5 + float(each) for each in steps]).memory == 0.0


@given(st.lists(st.floats(1e-300, 1e300).map(math.log), max_size=60))
@settings(max_examples=60)
def test_noise_is_always_a_number(values: list[float]) -> None:
    """At least the floor, and a correlation that leaves room."""
    noise = noise_of(values)
    assert FLOOR <= noise.scale < math.inf
    assert 0 <= noise.memory <= 0.6


def test_what_is_long_ago_is_forgotten() -> None:
    """Memory is bounded; a job that has become noisy is noisy."""
    noise = noise_of(normal(1000, 0.01) + normal(1000, 0.1, seed=1))
    assert noise.scale == pytest.approx(0.1, rel=0.2)
    assert len(vars(noise)["_values"]) == 400
