"""rate_over_time: failures and exposure by the week, and where the rate became another."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.reliability.overtime import DAY_S, Exposure, rate_over_time, steady

MONDAY_S = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
WEEK_S = 7 * DAY_S


def test_every_failure_and_every_node_day_lies_in_one_week() -> None:
    """The sums over weeks are those of the whole time, and the rates lie within their bounds."""
    chance = np.random.default_rng(3)
    failures_s = MONDAY_S + chance.uniform(0, 50 * WEEK_S, 400)
    found = rate_over_time(failures_s, steady(MONDAY_S, MONDAY_S + 50 * WEEK_S, 100))
    assert sum(week.failures for week in found.stretches) == 400
    assert sum(week.node_days for week in found.stretches) == pytest.approx(100 * 350)
    for week in found.stretches:
        assert week.low is not None
        assert week.rate is not None
        assert week.high is not None
        assert week.low <= week.rate <= week.high
    assert found.shifts == []


def test_a_regression_shows_with_its_week() -> None:
    """From one week on there are three times as many failures: that is told, per 1000 node-days."""
    chance = np.random.default_rng(4)
    before = MONDAY_S + chance.uniform(0, 30 * WEEK_S, 150)
    after = MONDAY_S + chance.uniform(30 * WEEK_S, 50 * WEEK_S, 300)
    found = rate_over_time(np.concatenate((before, after)), steady(MONDAY_S, MONDAY_S + 50 * WEEK_S, 100))
    (shift,) = found.shifts
    assert abs(shift.start.timestamp() - MONDAY_S - 30 * WEEK_S) <= 2 * WEEK_S
    assert shift.before == pytest.approx(1000 * 150 / (100 * 210), rel=0.2)
    assert shift.after == pytest.approx(1000 * 300 / (100 * 140), rel=0.2)


def test_a_cluster_that_grows_is_no_regression() -> None:
    """Twice the nodes have twice the failures, and the rate is the same."""
    chance = np.random.default_rng(5)
    exposure = Exposure(
        MONDAY_S + np.array([0.0, 25 * WEEK_S]),
        MONDAY_S + np.array([50 * WEEK_S, 50 * WEEK_S]),
        np.array([100.0, 300.0]),
    )
    first = MONDAY_S + chance.uniform(0, 25 * WEEK_S, 100)
    later = MONDAY_S + chance.uniform(25 * WEEK_S, 50 * WEEK_S, 400)
    assert rate_over_time(np.concatenate((first, later)), exposure).shifts == []


@given(
    st.lists(st.tuples(st.floats(0, 400), st.floats(0, 60), st.integers(1, 2000)), min_size=1, max_size=30),
    st.floats(0, 500),
)
def test_exposure_is_what_adding_up_gives(spans: list[tuple[float, float, int]], day: float) -> None:
    """Whatever lies before, after, or within each other."""
    starts = MONDAY_S + DAY_S * np.array([start for start, _, _ in spans])
    ends = starts + DAY_S * np.array([length for _, length, _ in spans])
    nodes = np.array([float(count) for _, _, count in spans])
    until_s = MONDAY_S + DAY_S * day
    expected = float((nodes * np.clip(until_s - starts, 0, ends - starts)).sum() / DAY_S)
    found = Exposure(starts, ends, nodes).node_days_until(np.array([until_s]))[0]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_nothing_to_watch_gives_nothing() -> None:
    """An empty record has no weeks."""
    empty = np.array([])
    assert rate_over_time(empty, Exposure(empty, empty, empty)).stretches == []
