"""Status and size: shares by count and by GPU time, with their intervals."""

from __future__ import annotations

import polars as pl
import pytest

from holdfast.reliability.attribution import attribute
from holdfast.reliability.status import hardware_share, size_bucket, size_mix, status_mix
from jobtables import attempts, events, minute

TABLE = attempts(
    {"state": "COMPLETED", "gpus": 8},
    {"state": "COMPLETED", "gpus": 1},
    {"state": "NODE_FAIL", "gpus": 64, "end": 30},
    {"state": "RUNNING", "gpus": 16, "end": None},
    {"state": "PENDING", "start": None, "end": None},
)


def test_states_have_shares_of_the_count_and_of_the_time() -> None:
    """Half of the attempts completed, one that failed took most of the GPU time, one never started."""
    mix = status_mix(TABLE)
    assert mix.select("state", "attempts", "gpu_hours").rows() == [
        ("COMPLETED", 2, 9.0),
        ("NODE_FAIL", 1, 32.0),
        ("RUNNING", 1, 0.0),
    ]
    assert mix["share"].to_list() == [0.5, 0.25, 0.25]
    assert mix["gpu_share"].to_list() == pytest.approx([9 / 41, 32 / 41, 0])


def test_attempts_that_still_run_count_up_to_a_given_end() -> None:
    """Told until when, the time of a running attempt counts."""
    mix = status_mix(TABLE, minute(120)).filter(pl.col("state") == "RUNNING")
    assert mix["gpu_hours"].to_list() == [32.0]


def test_intervals_hold_their_share_and_are_exact_for_counts() -> None:
    """One of four lies between 1.3 and 75.1 % (Clopper and Pearson at 90 %)."""
    mix = status_mix(TABLE)
    assert mix.filter(pl.col("share_low") > pl.col("share")).height == 0
    assert mix.filter(pl.col("gpu_share_low") > pl.col("gpu_share")).height == 0
    one = mix.filter(pl.col("state") == "NODE_FAIL")
    assert one.select("share_low", "share_high").row(0) == pytest.approx((0.01274, 0.75140), abs=1e-4)


@pytest.mark.parametrize(
    ("gpus", "bucket"),
    [(0, 0), (1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (1024, 1024), (1025, 2048), (65536, 65536)],
)
def test_a_bucket_is_the_next_power_of_two(gpus: int, bucket: int) -> None:
    """Powers of two are their own bucket."""
    assert attempts({"gpus": gpus}).select(size_bucket()).item() == bucket


def test_sizes_are_in_order_and_leave_out_what_is_not_known() -> None:
    """The smallest comes first; attempts whose size nobody tells are in no bucket."""
    table = pl.concat([TABLE, attempts({"gpus": None})])
    assert size_mix(table)["bucket"].to_list() == [1, 8, 16, 64]


def test_failures_of_the_cluster_take_more_time_than_their_number_says() -> None:
    """One of four attempts, and 32 of 41 GPU hours."""
    found = hardware_share(attribute(TABLE, events()))
    assert found.select("attempts", "share").row(0) == (1, 0.25)
    assert found["gpu_share"].item() == pytest.approx(32 / 41)
