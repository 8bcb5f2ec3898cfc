"""rate_changes: where failures per week became more or fewer, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detect.rates import dispersion, rate_changes


@pytest.mark.parametrize("factor", [2.5, 1 / 2.5])
def test_a_change_is_found_about_where_it_was(factor: float) -> None:
    """With the rates before and after, per exposure and not per stretch."""
    chance = np.random.default_rng(7)
    exposures = chance.uniform(50, 150, 60)
    rates = np.where(np.arange(60) < 25, 0.1, 0.1 * factor)
    (change,) = rate_changes(chance.poisson(rates * exposures).tolist(), exposures.tolist())
    assert abs(change.at - 25) <= 4
    assert change.before == pytest.approx(0.1, rel=0.2)
    assert change.after == pytest.approx(0.1 * factor, rel=0.2)


def test_a_spike_has_two_edges() -> None:
    """A bad month begins and ends."""
    counts = [5] * 20 + [25] * 4 + [5] * 20
    assert [change.at for change in rate_changes(counts, [1.0] * 44)] == [20, 24]


@pytest.mark.parametrize(("weeks", "mean"), [(12, 3.0), (60, 5.0), (300, 1.0)])
def test_a_steady_rate_is_left_alone(weeks: int, mean: float) -> None:
    """In nearly all of a hundred series of chance."""
    alarms = 0
    for seed in range(100):
        counts = np.random.default_rng(seed).poisson(mean, weeks).tolist()
        alarms += bool(rate_changes(counts, [1.0] * weeks))
    assert alarms <= 5


def test_clusters_are_no_changes() -> None:
    """Failures that come four at a time vary more, and that is taken into account."""
    alarms = 0
    for seed in range(100):
        counts = 4 * np.random.default_rng(seed).poisson(2.0, 80)
        alarms += bool(rate_changes(counts.tolist(), [1.0] * 80))
    assert alarms <= 8


def test_dispersion_is_that_of_the_clusters() -> None:
    """1 for independent events, 4 where they come in fours, also where the rate doubles halfway."""
    chance = np.random.default_rng(1)
    mean = np.where(np.arange(2000) < 1000, 5.0, 10.0)
    alone = chance.poisson(mean).astype(np.float64)
    assert dispersion(alone, np.ones(2000)) == pytest.approx(1.0, abs=0.15)
    assert dispersion(4 * chance.poisson(mean / 4).astype(np.float64), np.ones(2000)) == pytest.approx(
        4.0, rel=0.25
    )


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0.0, 0.5, 1.0, 7.0])), max_size=40))
def test_cuts_lie_within_the_series_and_stretches_without_exposure_are_passed_over(
    stretches: list[tuple[int, float]],
) -> None:
    """In order, each once, and never at a stretch that says nothing."""
    counts = [count for count, _ in stretches]
    exposures = [exposure for _, exposure in stretches]
    found = [change.at for change in rate_changes(counts, exposures)]
    assert found == sorted(set(found))
    assert all(0 < at < len(stretches) and exposures[at] > 0 for at in found)


def test_too_little_tells_nothing() -> None:
    """Three stretches cannot be cut."""
    assert rate_changes([1, 50, 50], [1.0] * 3) == []
    assert rate_changes([], []) == []
