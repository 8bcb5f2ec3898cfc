"""Failure rates from attempts of jobs: small tables with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from holdfast.reliability.attemptrates import AttemptRates, rates_of_attempts
from holdfast.reliability.tables import ATTEMPTS

FIRST = datetime(2025, 3, 1, tzinfo=UTC)


def attempts(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Attempts; ``hours`` gives the end where there is one."""
    made = []
    for row in rows:
        cells = {"state": "COMPLETED", "start": FIRST, **row}
        hours = cells.pop("hours", None)
        if hours is not None:
            cells["end"] = cells["start"] + timedelta(hours=hours)
        made.append(cells)
    extra = {"is_hardware": pl.Boolean} if any("is_hardware" in row for row in rows) else {}
    return pl.DataFrame(made, schema={**ATTEMPTS, **extra})


BIG = {"nodes": 32, "gpus": 256, "hours": 24.0}


def test_rate_is_of_large_attempts_and_hardware_alone() -> None:
    """NODE_FAIL and what was marked, over node-days of attempts with more than 128 GPUs."""
    found = rates_of_attempts(
        attempts(
            [
                {**BIG, "state": "NODE_FAIL"},
                {**BIG, "state": "FAILED", "is_hardware": True},
                {**BIG, "state": "FAILED", "is_hardware": False},
                {**BIG, "state": "PREEMPTED"},
                {**BIG, "state": "NODE_FAIL", "nodes": 16, "gpus": 128},  # Not more than 128.
            ]
        )
    )
    assert (found.attempts, found.rate.failures, found.rate.node_days) == (4, 2, 128.0)
    assert found.rate.per_1000_node_days == pytest.approx(2000 / 128)
    assert "more than 128 GPUs" in found.exposure
    assert "marked as hardware" in found.exposure


def test_unmarked_attempts_only_count_node_failures() -> None:
    """And the exposure says so."""
    found = rates_of_attempts(attempts([{**BIG, "state": "NODE_FAIL"}, {**BIG, "state": "FAILED"}]))
    assert found.rate.failures == 1
    assert "marked" not in found.exposure


def test_outage_of_many_nodes_counts_once_for_each_attempt() -> None:
    """However many of its nodes failed, and whatever nodes another attempt had."""
    one = rates_of_attempts(attempts([{**BIG, "state": "NODE_FAIL", "node_list": "n[1-32]"}]))
    assert one.rate.failures == 1


def test_attempt_that_goes_on_counts_until_the_last_moment_told() -> None:
    """One that ended at an unknown time is left out and counted."""
    found = rates_of_attempts(
        attempts(
            [
                {**BIG, "hours": 48.0},
                {"state": "RUNNING", "nodes": 32, "gpus": 256},
                {"state": "COMPLETED", "nodes": 32, "gpus": 256},
                {"state": "PENDING", "start": None, "nodes": 32, "gpus": 256},
            ]
        )
    )
    assert (found.attempts, found.rate.node_days, found.unmeasured) == (2, 128.0, 1)


def test_requeued_job_has_one_failure_for_each_attempt() -> None:
    """All with the same id: 35 attempts that end in NODE_FAIL are 35 failures."""
    rows = [{**BIG, "job": "7", "attempt": number, "state": "NODE_FAIL"} for number in range(1, 36)]
    assert rates_of_attempts(attempts(rows)).rate.failures == 35


def test_sizes_are_rounded_up_to_whole_servers_and_then_to_powers_of_two() -> None:
    """1 to 8 GPUs are 8, 9 to 16 are 16, 17 to 32 are 32; the time is that of jobs, not of nodes."""
    found = rates_of_attempts(
        attempts(
            [
                {"gpus": gpus, "nodes": -(-gpus // 8), "hours": 10.0, "state": state}
                for gpus, state in ((1, "COMPLETED"), (8, "NODE_FAIL"), (9, "NODE_FAIL"), (17, "COMPLETED"))
            ]
        ),
        over_gpus=0,
    )
    assert [(each.gpus, each.attempts, each.failures, each.mttf_hours) for each in found.sizes] == [
        (8, 2, 1, 20.0),
        (16, 1, 1, 10.0),
        (32, 1, 0, None),
    ]
    assert found.sizes[2].low == pytest.approx(10 / 2.996, rel=1e-3)
    assert found.sizes[2].high is None


def test_measured_and_projected_mttf_agree_where_there_is_one_size() -> None:
    """The same failures over the same nodes."""
    found = rates_of_attempts(attempts([{**BIG, "state": "NODE_FAIL"}, BIG, BIG]))
    assert found.sizes[0].mttf_hours == pytest.approx(72.0)
    assert found.sizes[0].projected_hours == pytest.approx(72.0)


def test_cluster_that_tells_no_gpus_has_whole_nodes() -> None:
    """Where others tell theirs, an attempt that tells none has none."""
    silent = {"nodes": 32, "hours": 24.0}
    assert rates_of_attempts(attempts([silent])).attempts == 1
    assert rates_of_attempts(attempts([silent, BIG])).attempts == 1


@pytest.mark.parametrize("rows", [[], [{"hours": 3.0}], [{"gpus": 8, "nodes": 1, "hours": 3.0}]])
def test_records_that_say_nothing_of_large_jobs_give_no_rate(rows: list[dict[str, Any]]) -> None:
    """No attempts, none whose size is told, none large enough."""
    found: AttemptRates = rates_of_attempts(attempts(rows))
    assert (found.attempts, found.rate.per_1000_node_days) == (0, None)
