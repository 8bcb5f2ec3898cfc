"""The crash loop of the paper, as a history."""

from __future__ import annotations

import random

import polars as pl
import pytest

from holdfast.simulate.cluster_scenarios import CRASH_LOOP, crash_loop


@pytest.mark.parametrize("seed", range(3))
def test_crash_loop_has_thirty_five_requeues_and_hundreds_of_preemptions(seed: int) -> None:
    """One job of 1,024 GPUs is requeued 35 times under one id; about 548 preemptions over 7k GPUs follow."""
    record = crash_loop(random.Random(seed))
    large = record.attempts.filter(pl.col("name") == CRASH_LOOP).sort("attempt")
    assert large["job"].n_unique() == 1, seed
    assert large["state"].to_list() == ["NODE_FAIL"] * 35 + ["COMPLETED"], seed
    assert large["gpus"].unique().to_list() == [1024], seed
    second = record.truth.filter("is_second_order")
    assert second["preemptor"].unique().to_list() == large["job"].unique().to_list(), seed
    assert second.height == pytest.approx(548, rel=0.1), seed
    victims = record.attempts.join(second.select("job", "attempt"), on=["job", "attempt"])
    assert victims["gpus"].sum() == pytest.approx(7000, rel=0.1), seed


def test_a_job_may_crash_as_often_as_one_likes() -> None:
    """The number of crashes is a parameter."""
    record = crash_loop(random.Random(1), crashes=3)
    large = record.attempts.filter(pl.col("name") == CRASH_LOOP)
    assert large["state"].cast(pl.String).sort().to_list() == [
        "COMPLETED",
        "NODE_FAIL",
        "NODE_FAIL",
        "NODE_FAIL",
    ]
