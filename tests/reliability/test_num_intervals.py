"""How sure a rate is: known values, counts of nodes that are alike and of those that are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import pdtr

from holdfast.reliability.intervals import dispersion, quasi_interval, rate_interval
from holdfast.reliability.rates import make_rate


@pytest.mark.parametrize(
    ("failures", "node_days", "low", "high"),
    [(0, 1000, 0.0, 2.996), (5, 1000, 1.970, 10.513), (419, 110_592, 3.489, 4.108)],
)
def test_gamma_interval_has_its_reference_values(
    failures: int, node_days: float, low: float, high: float
) -> None:
    """The exact 90 % interval, per 1000 node-days; 419 are the failures of Llama 3's run."""
    ends = [1000 * float(end) for end in rate_interval(failures, node_days)]
    assert ends == pytest.approx([low, high], abs=5e-4)


def test_llama_3_has_a_rate_of_3_79() -> None:
    """419 failures of 2048 nodes in 54 days."""
    assert make_rate(419, 2048 * 54).per_1000_node_days == pytest.approx(3.79, abs=0.005)


def test_glm_130b_has_a_rate_of_2_1() -> None:
    """11 failures of 96 nodes in 55 days, from 1.2 to 3.4."""
    rate = make_rate(11, 96 * 55)
    assert [rate.per_1000_node_days, rate.low, rate.high] == pytest.approx([2.1, 1.2, 3.4], abs=0.06)


@given(st.integers(0, 500), st.sampled_from([0.5, 0.9, 0.99]))
def test_ends_of_the_interval_leave_the_same_tails(failures: int, level: float) -> None:
    """At the low end so many failures or more are as unlikely as so many or fewer at the high end."""
    low, high = (float(end) for end in rate_interval(failures, 1.0, level))
    tail = (1 - level) / 2
    assert float(pdtr(failures, high)) == pytest.approx(tail, rel=1e-6)
    if failures:
        assert 1 - float(pdtr(failures - 1, low)) == pytest.approx(tail, rel=1e-5)
    else:
        assert low == 0


def test_many_counts_are_taken_at_once() -> None:
    """One exposure serves all of them; without exposure nothing is known."""
    low, high = rate_interval([0, 5, 5], [1000, 1000, 0])
    assert low.tolist() == pytest.approx([0, 1.970e-3, 0], abs=1e-6)
    assert high.tolist()[:2] == pytest.approx([2.996e-3, 10.513e-3], abs=1e-6)
    assert high[2] == np.inf


def test_quasi_poisson_interval_is_wider_by_the_root_of_the_factor() -> None:
    """With many failures, four times the variance is twice the width; a factor of 1 changes nothing."""
    low, high = rate_interval(4000, 1.0)
    wide_low, wide_high = quasi_interval(4000, 1.0, 4.0)
    assert (wide_high - wide_low) / (high - low) == pytest.approx(2, rel=0.01)
    assert quasi_interval(4000, 1.0, 1.0) == (low, high)


def test_scatter_of_equal_exposures_is_variance_over_mean() -> None:
    """And it is said that the interval is too narrow."""
    counts = np.array([0, 0, 1, 0, 20, 3, 0, 0, 15, 1])
    found = dispersion(counts)
    assert found is not None
    assert found.ratio == pytest.approx(counts.var(ddof=1) / counts.mean())
    assert found.is_too_wide
    assert "too narrow" in found.tell()
    assert found.factor == found.ratio


def test_scatter_is_by_exposure() -> None:
    """Nodes that fail in proportion to how long they ran are alike."""
    counts, days = np.array([10, 20, 30, 400]), np.array([1, 2, 3, 40])
    by_exposure, by_count = dispersion(counts, days), dispersion(counts)
    assert by_exposure is not None
    assert by_count is not None
    assert by_exposure.ratio == pytest.approx(0)
    assert (by_exposure.is_too_wide, by_count.is_too_wide) == (False, True)
    assert by_exposure.factor == 1
    assert "stands" in by_exposure.tell()


@pytest.mark.parametrize("counts", [[], [3], [0, 0, 0]])
def test_too_little_says_nothing_of_scatter(counts: list[int]) -> None:
    """One node, or no failures."""
    assert dispersion(counts) is None
