"""The simulated cluster: what holds in every history, and what each rule of the scheduler does."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import cache

import polars as pl
import pytest

from holdfast.reliability.attribution import on_nodes
from holdfast.reliability.status import status_mix
from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import DAY_S, HOUR_S, SYMPTOMS, ClusterPlan, NodeFailure, Request
from holdfast.simulate.cluster_record import EPOCH, ClusterRecord, node_list, node_name, node_number

SEEDS = range(3)
QUIET = ClusterPlan(nodes=2, days=20.0, false_alarm_share=0.0)


@cache
def history(seed: int) -> ClusterRecord:
    """A busy week on 64 nodes that fail ten times as often as published."""
    return simulate_cluster(ClusterPlan(nodes=64, days=7.0, rate_per_node_day=0.065), random.Random(seed))


def run(
    *requests: Request, failures: tuple[NodeFailure, ...] = (), plan: ClusterPlan = QUIET
) -> ClusterRecord:
    """A history with jobs and failures of our own."""
    return simulate_cluster(plan, random.Random(0), requests=requests, failures=failures)


def broken(at_s: float, *, is_silent: bool = True, is_noticed: bool = True, node: int = 0) -> NodeFailure:
    """A failure that takes an hour to mend."""
    return NodeFailure(node, at_s, HOUR_S, SYMPTOMS[0], is_silent, is_noticed)


def told(record: ClusterRecord, *columns: str) -> list[tuple[object, ...]]:
    """What the attempts say, with times in hours."""
    hours = [
        ((pl.col(name) - EPOCH).dt.total_seconds() / 3600).round(3).alias(name)
        if name in {"start", "end", "eligible"}
        else name
        for name in columns
    ]
    return record.attempts.sort("start", "job", nulls_last=True).select(hours).rows()


# --- what always holds ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_no_node_gives_more_gpus_than_it_has(seed: int) -> None:
    """All that run on a node have eight GPUs at most between them, and on a dead node nothing runs."""
    record = history(seed)
    placed = on_nodes(record.attempts.filter(pl.col("start").is_not_null()))
    each = (pl.col("gpus") / pl.col("nodes")).alias("by")
    end = pl.col("end").fill_null(EPOCH + timedelta(days=8))
    outs = record.events.filter(pl.col("kind") == "state")
    out_end = pl.col("until").fill_null(EPOCH + timedelta(days=8))
    changes = pl.concat(
        [
            placed.select("node", each, at="start"),
            placed.select("node", -each, at=end),
            outs.select("node", "at", by=pl.lit(8.0)).select("node", "by", "at"),
            outs.select("node", at=out_end, by=pl.lit(-8.0)).select("node", "by", "at"),
        ]
    )
    # At one moment, what ends comes before what begins.
    used = changes.sort("node", "at", "by").with_columns(pl.col("by").cum_sum().over("node"))
    assert used["by"].max() == 8.0, seed
    assert used["by"].min() == 0.0, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_every_gpu_second_is_in_one_account(seed: int) -> None:
    """Used, idle and out add up to the cluster; used is what the attempts say, out what the states say."""
    record = history(seed)
    spent = record.spent_gpu_s
    assert sum(spent.values()) == pytest.approx(64 * 8 * 7 * DAY_S)
    until = EPOCH + timedelta(days=7)
    ran = (pl.col("end").fill_null(until) - pl.col("start")).dt.total_microseconds() / 1e6 * pl.col("gpus")
    assert record.attempts.select(ran.sum()).item() == pytest.approx(spent["used"], rel=1e-6)
    out = (pl.min_horizontal(pl.col("until").fill_null(until), until) - pl.col("at")).dt.total_seconds() * 8
    states = record.events.filter(pl.col("kind") == "state")
    assert states.select(out.sum()).item() == pytest.approx(spent["out"], rel=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_keep_their_id_and_their_attempts_follow_each_other(seed: int) -> None:
    """Attempts count from one, none begins before the last has ended, and nothing follows a final state."""
    ordered = history(seed).attempts.sort("job", "attempt")
    over = ordered.with_columns(
        _number=pl.int_range(1, pl.len() + 1).over("job"),
        _gap=(pl.col("eligible") - pl.col("end").shift(1).over("job")).dt.total_seconds(),
        _before=pl.col("state").cast(pl.String).shift(1).over("job"),
    )
    assert (over["_number"] == over["attempt"]).all(), seed
    assert over["_gap"].drop_nulls().min() == 0.0, seed
    again = {"PREEMPTED", "NODE_FAIL", "FAILED", "REQUEUED"}
    assert set(over["_before"].drop_nulls().unique()) <= again, seed
    assert over.filter(pl.col("start") < pl.col("eligible")).height == 0, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_preemption_spares_the_young_and_the_important(seed: int) -> None:
    """Whoever was preempted had run for two hours, and for a job of higher priority that starts at once."""
    attempts = history(seed).attempts
    victims = attempts.filter(pl.col("state") == "PREEMPTED")
    assert victims.height > 20, seed
    assert victims.filter(pl.col("end") - pl.col("start") < timedelta(hours=2)).height == 0, seed
    starts = attempts.select(preemptor="job", by_start="start", by_priority="priority")
    met = victims.join(starts, on="preemptor").filter(pl.col("by_start") == pl.col("end"))
    assert met.height == victims.height, seed
    assert met.filter(pl.col("by_priority") <= pl.col("priority")).height == 0, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_truth_is_about_the_attempts_that_were_ended(seed: int) -> None:
    """Every NODE_FAIL and every preemption has its row of truth, with a node of its own list."""
    record = history(seed)
    both = record.attempts.join(record.truth, on=["job", "attempt"], suffix="_true")
    assert both.height == record.truth.height, seed
    states = record.attempts["state"].value_counts()
    counts = dict(states.iter_rows())
    assert both.filter(pl.col("state") == "NODE_FAIL").height == counts["NODE_FAIL"], seed
    assert both.filter(pl.col("state") == "PREEMPTED").height == counts["PREEMPTED"], seed
    failed = both.filter(pl.col("node").is_not_null()).rename({"node": "true_node"})
    assert on_nodes(failed).filter(pl.col("node") == pl.col("true_node")).height == failed.height, seed


def test_a_seed_is_a_history() -> None:
    """The same seed gives the same tables, another one does not."""
    one, again = (simulate_cluster(ClusterPlan(nodes=16, days=3.0), random.Random(4)) for _ in range(2))
    other = simulate_cluster(ClusterPlan(nodes=16, days=3.0), random.Random(5))
    assert one.attempts.equals(again.attempts)
    assert one.events.equals(again.events)
    assert one.truth.equals(again.truth)
    assert not one.attempts.equals(other.attempts)


def test_mix_of_states_is_near_the_published_one() -> None:
    """Over three weeks of 64 nodes: 60 % completed, 24 % failed, a few percent preempted, few by hardware."""
    attempts = pl.concat([history(seed).attempts for seed in SEEDS])
    shares = dict(status_mix(attempts).select("state", "share").iter_rows())
    assert shares["COMPLETED"] == pytest.approx(0.60, abs=0.06)
    assert shares["FAILED"] == pytest.approx(0.24, abs=0.04)
    assert 0.02 < shares["PREEMPTED"] < 0.20
    assert shares["NODE_FAIL"] < 0.02


def test_checks_fail_for_nothing_in_less_than_a_percent_of_completed_attempts() -> None:
    """As published; those checks name the job that they disturbed."""
    alarms = completed = 0
    for seed in SEEDS:
        record = history(seed)
        alarms += record.events.filter(pl.col("job").is_not_null() & (pl.col("kind") == "check")).height
        completed += record.attempts.filter(pl.col("state") == "COMPLETED").height
    assert 0 < alarms < 0.01 * completed


# --- single rules ---------------------------------------------------------------------------------


def test_an_attempt_lives_for_seven_days_at_most() -> None:
    """A job that wants more is ended as TIMEOUT, and does not come back."""
    record = run(Request(submit_s=0.0, gpus=8, duration_s=9 * DAY_S))
    assert told(record, "state", "start", "end") == [("TIMEOUT", 0.0, 168.0)]


def test_a_silent_node_requeues_its_job_under_the_same_id() -> None:
    """What was done since the last hourly checkpoint is done again, after the scheduler's two minutes."""
    record = run(Request(submit_s=0.0, gpus=16, duration_s=10 * HOUR_S), failures=(broken(5.5 * HOUR_S),))
    assert told(record, "job", "attempt", "state", "start", "end") == [
        ("1", 1, "NODE_FAIL", 0.0, 5.5),
        ("1", 2, "COMPLETED", 6.5, 11.5),
    ]
    states = record.events.filter(pl.col("kind") == "state")
    assert states.select("node", "name", "text").rows() == [("n0000", "DOWN", "Not responding")]
    assert record.truth.select("job", "attempt", "node").rows() == [("1", 1, "n0000")]


def test_a_failed_check_requeues_as_well() -> None:
    """The attempt is FAILED, the node is drained, and the other node takes the job."""
    record = run(
        Request(submit_s=0.0, gpus=8, duration_s=2 * HOUR_S), failures=(broken(HOUR_S, is_silent=False),)
    )
    assert told(record, "job", "state", "start", "node_list") == [
        ("1", "FAILED", 0.0, "n0000"),
        ("1", "COMPLETED", pytest.approx(1.033), "n0001"),
    ]
    assert record.events.filter(pl.col("kind") == "state")["name"].to_list() == ["DRAIN"]


def test_a_failure_that_nobody_notices_leaves_the_node_and_the_user_to_themselves() -> None:
    """The job is not requeued; its user submits it again, here without the node."""
    plan = ClusterPlan(nodes=2, days=20.0, false_alarm_share=0.0, exclude_share=1.0)
    failure = broken(1.5 * HOUR_S, is_silent=False, is_noticed=False)
    record = run(Request(submit_s=0.0, gpus=8, duration_s=3 * HOUR_S), failures=(failure,), plan=plan)
    assert told(record, "job", "name", "state", "node_list", "exclude") == [
        ("1", "train", "FAILED", "n0000", None),
        ("2", "train", "COMPLETED", "n0001", "n0000"),
    ]
    assert record.events.select("kind", "node", "job").rows() == [("exclusion", "n0000", "2")]


def test_important_jobs_wait_two_hours_and_then_preempt() -> None:
    """The victim is requeued, and goes on from its checkpoint when the other has ended."""
    low = Request(submit_s=0.0, gpus=16, duration_s=4 * HOUR_S, priority=1)
    high = Request(submit_s=HOUR_S, gpus=8, duration_s=HOUR_S, priority=3)
    assert told(run(low, high), "job", "state", "start", "end", "preemptor") == [
        ("1", "PREEMPTED", 0.0, 2.0, "2"),
        ("2", "COMPLETED", 2.0, 3.0, None),
        ("1", "COMPLETED", 3.0, 5.0, None),
    ]


def test_small_jobs_share_a_node_and_overtake_those_that_cannot_start() -> None:
    """Two small jobs run beside each other while one that needs both nodes waits for a full one."""
    full = Request(submit_s=0.0, gpus=8, duration_s=HOUR_S)
    both = Request(submit_s=1.0, gpus=16, duration_s=HOUR_S)
    small = [Request(submit_s=2.0, gpus=4, duration_s=0.5 * HOUR_S) for _ in range(2)]
    assert told(run(full, both, *small), "job", "start", "node_list") == [
        ("1", 0.0, "n0000"),
        ("3", pytest.approx(2 / 3600, abs=1e-3), "n0001"),
        ("4", pytest.approx(2 / 3600, abs=1e-3), "n0001"),
        ("2", 1.0, "n[0000-0001]"),
    ]


def test_what_does_not_end_in_time_is_running_or_pending() -> None:
    """The record ends in the middle: no end for the one, no start for the other."""
    long = Request(submit_s=0.0, gpus=16, duration_s=6 * DAY_S)
    record = run(long, long, plan=ClusterPlan(nodes=2, days=1.0))
    assert told(record, "state", "start", "end") == [("RUNNING", 0.0, None), ("PENDING", None, None)]


def test_lists_of_nodes_are_written_as_slurm_does() -> None:
    """Ranges in brackets, single nodes without; names and numbers go both ways."""
    assert [node_list(nodes) for nodes in ([3], [3, 4, 5], [7, 3, 4])] == [
        "n0003",
        "n[0003-0005]",
        "n[0003-0004,0007]",
    ]
    assert node_number(node_name(12)) == 12
