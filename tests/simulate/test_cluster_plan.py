"""What a cluster is given: jobs and failures, as published or as recorded."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from holdfast.reliability.lanl import read_lanl
from holdfast.reliability.tables import OUTAGES
from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import ClusterPlan, draw_failures, draw_requests, failures_of

DATA = Path(os.environ.get("HOLDFAST_DATA") or "/nowhere") / "failures"


def test_sizes_are_those_of_the_published_cluster() -> None:
    """Over 40 % have one GPU, over 90 % fit a node and take under 10 % of the time, 256+ GPUs take 66 %."""
    sizes = ClusterPlan().sizes
    hours = {size.gpus: size.share * size.gpus * size.mean_h for size in sizes}
    total = sum(hours.values())
    assert sum(size.share for size in sizes) == pytest.approx(1, abs=0.002)
    assert sizes[0].share > 0.4
    assert sum(size.share for size in sizes if size.gpus <= 8) > 0.9
    assert sum(hours[gpus] for gpus in hours if gpus <= 8) < 0.1 * total
    assert sum(hours[gpus] for gpus in hours if gpus >= 256) == pytest.approx(0.66 * total)
    assert hours[4096] == pytest.approx(0.12 * total)


def test_full_cluster_gets_the_published_number_of_jobs() -> None:
    """About 7,200 jobs a day come to 2,048 nodes, and the mix of their ends is the published one."""
    requests = draw_requests(ClusterPlan(days=3.0), random.Random(1))
    assert len(requests) / 3 == pytest.approx(7200, rel=0.03)
    completed = sum(request.outcome == "COMPLETED" for request in requests) / len(requests)
    assert completed == pytest.approx(0.60 / 0.899, abs=0.01)


def test_no_job_is_larger_than_its_share_of_the_cluster() -> None:
    """A cluster of 16 nodes gets jobs of up to 64 GPUs, in the order of their arrival."""
    requests = draw_requests(ClusterPlan(nodes=16, days=7.0), random.Random(1))
    assert max(request.gpus for request in requests) == 64
    times = [request.submit_s for request in requests]
    assert times == sorted(times)


def test_failures_follow_the_rate_of_each_node() -> None:
    """A node without a rate never fails, and one of ten a day fails about 280 times in four weeks."""
    plan = ClusterPlan(nodes=2, days=28.0)
    failures = draw_failures(plan, random.Random(3), [0.0, 10.0])
    assert {failure.node for failure in failures} == {1}
    assert 220 < len(failures) < 340
    with pytest.raises(ValueError, match="3 rates, expected one for each of 2 nodes"):
        draw_failures(plan, random.Random(3), [1.0, 1.0, 1.0])


def test_recorded_outages_drive_a_cluster() -> None:
    """Time, node and repair are those of the record; more nodes than the cluster has are refused."""
    start = datetime(2003, 1, 1, tzinfo=UTC)
    rows = [
        {"node": "b", "at": start + timedelta(hours=2), "down_min": 30.0},
        {"node": "a", "at": start, "down_min": None},
        {"node": "a", "at": start + timedelta(days=99), "down_min": 10.0},
    ]
    outages = pl.DataFrame(rows, schema=dict(OUTAGES))
    failures = failures_of(outages, ClusterPlan(nodes=2, days=7.0), random.Random(0))
    assert [(failure.node, failure.at_s) for failure in failures] == [(0, 0.0), (1, 7200.0)]
    assert failures[1].repair_s == 1800.0
    with pytest.raises(ValueError, match="failures of 2 nodes, expected at most the 1"):
        failures_of(outages, ClusterPlan(nodes=1), random.Random(0))


def test_clusters_without_nodes_are_refused() -> None:
    """A plan that cannot be is said when it is made."""
    with pytest.raises(ValueError, match="a cluster of 0 nodes"):
        ClusterPlan(nodes=0)


@pytest.mark.external
def test_real_failures_drive_a_cluster() -> None:
    """Half a year of a system of 16 nodes: nodes go out at the times at which the record says they failed."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    table = read_lanl(next(DATA.glob("lanl-*.csv"))).table.filter(pl.col("system") == "16")
    plan = ClusterPlan(nodes=16, days=180.0, utilisation=0.5)
    rng = random.Random(0)
    failures = failures_of(table, plan, rng)
    record = simulate_cluster(plan, rng, failures=failures)
    outs = record.events.filter(pl.col("kind") == "state")
    times = {round(failure.at_s) for failure in failures}
    since = (outs["at"] - datetime(2024, 1, 1, tzinfo=UTC)).dt.total_seconds()
    assert outs.height > 30
    assert set(since) <= times
    assert record.attempts.filter(pl.col("state") == "NODE_FAIL").height > 5
