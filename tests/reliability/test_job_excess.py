"""Excess: exact tails, a fleet's rate that bad nodes do not bend, combination and false discoveries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.reliability.excess import Fleet, binomial_tail, combine, false_discovery, fit_fleet


def test_tail_of_alike_nodes_is_that_of_poisson() -> None:
    """At a mean of 2, three or more come with 0.3233; half of exactly three (0.1804) is taken off."""
    tail = Fleet(rate=0.5).tail(np.array([3.0, 0.0]), np.array([4.0, 0.0]))
    assert tail == pytest.approx([0.3233 - 0.1804 / 2, 1.0], abs=1e-4)


def test_tail_of_unlike_nodes_is_wider() -> None:
    """Where nodes differ much, ten counts are less of a surprise; at shape 1 the tail is geometric."""
    counts, exposure = np.array([10.0]), np.array([2.0])
    alike, unlike = Fleet(rate=1.0).tail(counts, exposure), Fleet(rate=1.0, shape=1.0).tail(counts, exposure)
    share = 2 / 3
    assert unlike == pytest.approx([share**11 + 0.5 * share**10 * (1 - share)])
    assert alike < 1e-4 < unlike


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [math.inf, 1.0])
def test_fit_finds_rate_and_difference_of_a_fleet_with_bad_nodes(seed: int, shape: float) -> None:
    """Twenty-four nodes of forty times the rate among 2,048 move the rate by no more than chance does."""
    rng = np.random.default_rng(seed)
    exposure = rng.uniform(0.5, 1.5, 2048)
    rates = np.full(2048, 0.5) if math.isinf(shape) else rng.gamma(shape, 0.5 / shape, 2048)
    rates[:24] *= 40
    fleet = fit_fleet(rng.poisson(rates * exposure).astype(float), exposure)
    assert fleet.rate == pytest.approx(0.5, rel=0.2), seed
    if math.isinf(shape):
        assert fleet.shape >= 3, seed
    else:
        assert 0.5 <= fleet.shape <= 2, seed


def test_fleet_without_counts_surprises_nobody() -> None:
    """A signal that no node has says nothing of any."""
    fleet = fit_fleet(np.zeros(10), np.ones(10))
    assert fleet == Fleet(rate=0.0)
    assert (fleet.tail(np.zeros(10), np.ones(10)) >= 0.5).all()


def test_times_are_drawn_towards_one_where_little_is_known() -> None:
    """One count where 0.01 is expected is three times the rate rather than a hundred."""
    times = Fleet(rate=0.01).times(np.array([0.0, 1.0, 100.0]), np.array([1.0, 1.0, 1000.0]))
    assert times == pytest.approx([0.98, 2.94, 9.57], abs=0.01)


def test_binomial_tail_is_exact() -> None:
    """Two or more of three at one half: 0.5, of which half of exactly two (0.375) is taken off."""
    tail = binomial_tail(np.array([2.0, 3.0, 0.0]), np.array([3.0, 3.0, 0.0]), 0.5)
    assert tail == pytest.approx([0.5 - 0.375 / 2, 0.125 / 2, 1.0])


def test_combination_of_equal_tails_is_that_tail() -> None:
    """Tests that say the same together say the same, down to chances that a tangent cannot tell apart."""
    same = np.array([[0.03, 0.03], [1e-9, 1e-9]])
    assert combine(same, np.array([0.3, 0.7])) == pytest.approx([0.03, 1e-9], rel=1e-3)


def test_one_test_that_sees_nothing_does_not_silence_the_other() -> None:
    """A tail of one beside a tiny one of half the weight gives about twice the tiny one."""
    assert combine(np.array([[1e-6, 1.0]]), np.array([0.5, 0.5])) == pytest.approx([2e-6], rel=0.01)


def test_false_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    """The values of a worked example, whatever their order."""
    q = false_discovery(np.array([0.04, 0.001, 0.5, 0.03]))
    assert q == pytest.approx([0.16 / 3, 0.004, 0.5, 0.16 / 3])


def test_rate_of_a_small_fleet_is_not_taken_for_sure() -> None:
    """Five counts on one of four nodes: the other three are worth half a count, and prove little."""
    counts, exposure = np.array([5.0, 0.0, 0.0, 0.0]), np.ones(4)
    fleet = fit_fleet(counts, exposure)
    assert fleet.rate == pytest.approx(0.5 / 3, rel=0.05)
    assert fleet.known == 0.5
    assert fleet.tail(counts, exposure)[0] > 1e-4 > Fleet(rate=fleet.rate).tail(counts, exposure)[0]
