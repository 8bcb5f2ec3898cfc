"""Intervals hold what they should about as often as they say: few seeds here, a thousand in the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from reliable.coverage import (
    Coverage,
    cover_ettr,
    cover_rate,
    cover_run,
    cover_scattered,
    cover_second,
    draw_attempts,
)

SEEDS = range(60)
LEAST = 0.78
"""Of 60 intervals that hold 90 % each, fewer do once in 500 times; the seeds are fixed."""


@pytest.mark.parametrize("cover", [cover_rate, cover_ettr, cover_run])
def test_nine_intervals_of_ten_hold_the_truth(cover: Callable[[Iterable[int]], Coverage]) -> None:
    """Of the rate, of the ETTR that it means, and of one more run."""
    found = cover(SEEDS)
    assert found.seeds == 60
    assert found.share >= LEAST


def test_poisson_interval_is_too_narrow_for_unlike_nodes() -> None:
    """It holds the truth hardly more than every second time; the quasi-Poisson one does as it says."""
    narrow, wide = cover_scattered(range(200))
    assert narrow.share < 0.65
    assert 0.85 <= wide.share <= 0.97


@pytest.mark.parametrize("failures", [30, 100, 300])
def test_interval_of_the_second_order_share_covers_the_truth(failures: int) -> None:
    """Also where there are few failures, and a few large cascades make most of the loss."""
    found = cover_second(range(200), failures=failures)
    assert 0.84 <= found.share <= 0.985


def test_drawn_attempts_fail_at_their_rate() -> None:
    """A third of the 64-node jobs, which are to take a day on average, meet a failure at a rate of 6.5."""
    table = draw_attempts(np.random.default_rng(0), attempts=4000, rate_per_1000_node_days=6.5)
    failed = int((table["state"] == "NODE_FAIL").sum())
    assert failed / 4000 == pytest.approx(0.33, abs=0.03)
