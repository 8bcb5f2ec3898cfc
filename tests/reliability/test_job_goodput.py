"""Goodput: what failures cost, directly and by preemptions, and how sure the share of the latter is."""

from __future__ import annotations

import random

import polars as pl
import pytest

from holdfast.reliability.attribution import attribute
from holdfast.reliability.goodput import by_size, lost, second_share
from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import ClusterPlan
from holdfast.simulate.cluster_scenarios import crash_loop
from jobtables import attempts, events

BIG = {"job": "big", "gpus": 16, "nodes": 2, "node_list": "n[1-2]", "priority": 3}
STORY = (
    {**BIG, "state": "NODE_FAIL", "start": 0, "end": 100},
    {
        "job": "a",
        "gpus": 8,
        "node_list": "n1",
        "state": "PREEMPTED",
        "start": 100,
        "end": 220,
        "preemptor": "big",
    },
    {
        "job": "b",
        "gpus": 8,
        "node_list": "n2",
        "state": "PREEMPTED",
        "start": 200,
        "end": 220,
        "preemptor": "big",
    },
    {
        "job": "c",
        "gpus": 8,
        "node_list": "n3",
        "state": "PREEMPTED",
        "start": 0,
        "end": 220,
        "preemptor": "x",
    },
    {**BIG, "attempt": 2, "state": "COMPLETED", "start": 220, "end": 300},
    {"job": "x", "gpus": 8, "node_list": "n3", "start": 220, "end": 300, "priority": 5},
)


def without_preemptors() -> pl.DataFrame:
    """The same story from a scheduler that does not log them."""
    return attempts(*({**row, "preemptor": None} for row in STORY))


@pytest.mark.parametrize("table", [attempts(*STORY), without_preemptors()])
def test_a_restarted_victim_is_the_instigator_of_its_preemptions(table: pl.DataFrame) -> None:
    """Half an hour or the run time is lost, whichever is less; preemptions by others are not counted."""
    losses = lost(attribute(table, events())).sort("order", "job")
    assert losses.select("job", "order", "lost_gpu_h", "by_job", "by_attempt").rows() == [
        ("big", 1, 8.0, "big", 1),
        ("a", 2, 4.0, "big", 1),
        ("b", 2, pytest.approx(8 / 3), "big", 1),
    ]


def test_the_more_important_start_on_a_freed_node_is_blamed() -> None:
    """Where a job of higher priority starts on the node at the same time, the restarted one is innocent."""
    other = {"job": "y", "gpus": 8, "node_list": "n1", "start": 220, "end": 230, "priority": 9}
    table = pl.concat([without_preemptors(), attempts(other)])
    losses = lost(attribute(table, events()))
    assert losses.filter(pl.col("order") == 2)["job"].to_list() == ["b"]


def test_a_first_start_is_no_restart() -> None:
    """A job that preempts when it starts for the first time costs nothing that failures are to blame for."""
    early = attempts(
        {"job": "a", "state": "PREEMPTED", "start": 0, "end": 10, "preemptor": "big"},
        {**BIG, "state": "NODE_FAIL", "start": 10, "end": 12},
        {**BIG, "attempt": 2, "start": 14, "end": 60},
    )
    assert lost(attribute(early, events()))["order"].to_list() == [1]


def test_loss_is_told_by_size() -> None:
    """Failures and preemptions stand in the bucket of the attempt that lost."""
    sizes = by_size(lost(attribute(attempts(*STORY), events())))
    assert sizes.select("bucket", "failures", "preemptions", "first_gpu_h").rows() == [
        (8, 0, 2, 0.0),
        (16, 1, 0, 8.0),
    ]


def test_share_without_losses_is_unknown_and_without_preemptions_is_zero() -> None:
    """Nothing lost has no share; many failures without a preemption bound it from above."""
    calm = lost(attribute(attempts({}), events()))
    assert second_share(calm) is None
    failed = lost(attribute(attempts(*({"state": "NODE_FAIL"} for _ in range(100))), events()))
    share = second_share(failed)
    assert share is not None
    assert (share.value, share.low, share.failures) == (0.0, 0.0, 100)
    assert 0.02 < share.high < 0.04


@pytest.mark.parametrize("is_logged", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_second_order_is_that_of_the_simulator(seed: int, is_logged: bool) -> None:
    """With logged preemptors every second-order preemption is found and no other; without, nearly so."""
    plan = ClusterPlan(nodes=48, days=7.0, rate_per_node_day=0.2, noticed_share=1.0, logs_preemptor=is_logged)
    record = simulate_cluster(plan, random.Random(seed))
    found = lost(attribute(record.attempts, record.events)).filter(pl.col("order") == 2)
    true = record.truth.filter("is_second_order")
    right = found.join(true, on=["job", "attempt"], how="semi").height
    assert true.height > 5, seed
    # A check that came too late makes the failure before a restart unknown.
    assert right >= 0.8 * true.height, seed
    assert found.height - right <= 0.1 * true.height, seed


def test_crash_loop_is_mostly_second_order() -> None:
    """All preemptions of the restarted job are found, and each goes back to one of its 35 failures."""
    record = crash_loop(random.Random(0))
    losses = lost(attribute(record.attempts, record.events))
    second = losses.filter(pl.col("order") == 2)
    assert second.height == record.truth["is_second_order"].sum()
    assert losses.filter(pl.col("order") == 1).height == 35
    assert second.select("by_job", "by_attempt").n_unique() == 35
