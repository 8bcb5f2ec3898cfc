"""Attribution: the window, the causes, the culprits, and how often it matches by accident."""

from __future__ import annotations

import random

import polars as pl
import pytest

from holdfast.reliability import taxonomy
from holdfast.reliability.attribution import Window, attribute, cause_mix, chance, co_occurrence, on_nodes
from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import ClusterPlan
from jobtables import attempts, events

FAILED = {"state": "FAILED", "start": 0, "end": 60}


@pytest.mark.parametrize(
    ("at", "is_hardware"), [(49.9, False), (50, True), (60, True), (65, True), (65.1, False)]
)
def test_a_check_counts_from_ten_minutes_before_the_end_to_five_after(at: float, is_hardware: bool) -> None:
    """Both ends of the window belong to it, and nothing outside does."""
    found = attribute(attempts(FAILED), events({"at": at}))
    assert found["is_hardware"].to_list() == [is_hardware]
    assert found["cause"].to_list() == [taxonomy.INFINIBAND if is_hardware else taxonomy.USER]


def test_what_happened_before_an_attempt_began_is_not_its_cause() -> None:
    """A check one minute before the start of a short attempt is that of somebody else."""
    found = attribute(attempts({"state": "FAILED", "start": 55, "end": 60}), events({"at": 54}))
    assert found["cause"].to_list() == [taxonomy.USER]


def test_window_is_a_parameter() -> None:
    """A longer window sees what the usual one does not."""
    wide = Window(before_min=60, after_min=5)
    assert attribute(attempts(FAILED), events({"at": 5}), wide)["is_hardware"].to_list() == [True]


def test_states_decide_what_silence_means() -> None:
    """NODE_FAIL is the cluster's fault without a witness, FAILED is not, and other states have no cause."""
    states = ("NODE_FAIL", "FAILED", "OUT_OF_MEMORY", "COMPLETED", "PREEMPTED")
    found = attribute(attempts(*({"state": state} for state in states)), events())
    assert found["cause"].to_list() == [taxonomy.UNATTRIBUTED, taxonomy.USER, taxonomy.OOM, None, None]
    assert found["is_hardware"].to_list() == [True, False, False, False, False]
    assert found["culprits"].to_list() == [["n1"], [], [], [], []]


def test_most_severe_of_many_causes_comes_first_and_names_its_node() -> None:
    """The order is that of severity, not of time; the culprit is the node that shows the first of them."""
    table = attempts({**FAILED, "nodes": 3, "node_list": "n[1-3]"})
    seen = events(
        {"node": "n1", "at": 58, "name": "check mountpoint"},
        {"node": "n3", "at": 61, "kind": "xid", "name": "xid 95"},
        {"node": "n3", "at": 59, "kind": "state", "name": "DRAIN", "severity": None},
        {"node": "n4", "at": 59, "kind": "xid", "name": "xid 74"},
    )
    found = attribute(table, seen)
    assert found["causes"].to_list() == [[taxonomy.GPU_MEMORY, taxonomy.MOUNTS]]
    assert found["culprits"].to_list() == [["n3"]]


def test_node_that_went_down_is_the_culprit_of_a_failure_without_a_cause() -> None:
    """A state is no cause, but it says which of many nodes stopped to answer."""
    table = attempts({"state": "NODE_FAIL", "nodes": 2, "node_list": "n[1-2]"})
    found = attribute(
        table, events({"node": "n2", "at": 60, "kind": "state", "name": "DOWN", "severity": None})
    )
    assert (found["cause"][0], found["culprits"].to_list()) == (taxonomy.UNATTRIBUTED, [["n2"]])


def test_symptoms_that_programs_bring_about_do_not_blame_the_node() -> None:
    """A NCCL timeout alone is named, but it is not called a failure of the hardware."""
    found = attribute(attempts(FAILED), events({"at": 60, "name": "nccl timeout"}))
    assert (found["cause"][0], found["is_hardware"][0]) == (taxonomy.NCCL, False)


def test_attribution_keeps_rows_order_and_columns() -> None:
    """What comes out is what went in, with four columns more, even of tables without rows."""
    table = attempts({"job": "b"}, {"job": "a", **FAILED}, {"job": "c", "node_list": None, "state": "FAILED"})
    found = attribute(table, events({"at": 60}, {"at": 60.5}))
    assert found.select(table.columns).equals(table)
    assert found.columns[-4:] == ["causes", "culprits", "cause", "is_hardware"]
    assert attribute(table.clear(), events().clear()).height == 0


def test_lists_of_nodes_that_cannot_be_read_name_no_node() -> None:
    """A broken list costs its attempt the nodes, and nothing else."""
    table = attempts(
        {"node_list": "n[1-2]"}, {"node_list": "n[1"}, {"node_list": "None assigned"}, {"node_list": "n7"}
    )
    assert on_nodes(table).select("job", "node").rows() == [("1", "n1"), ("1", "n2"), ("4", "n7")]


def test_co_occurrence_counts_attempts_and_not_events() -> None:
    """Of two attempts with PCIe errors one also lost the GPU, however often it was told."""
    seen = [
        {"node": "n1", "at": 60, "name": "check pci"},
        {"node": "n1", "at": 60, "kind": "xid", "name": "xid 79"},
        {"node": "n1", "at": 61, "kind": "xid", "name": "xid 79"},
        {"node": "n2", "at": 60, "name": "check pci"},
    ]
    found = attribute(attempts(FAILED, {**FAILED, "node_list": "n2"}), events(*seen))
    assert co_occurrence(found).rows() == [
        (taxonomy.GPU_GONE, taxonomy.PCIE, 1, 1, 1.0),
        (taxonomy.PCIE, taxonomy.GPU_GONE, 2, 1, 0.5),
    ]
    assert cause_mix(found).select("cause", "attempts", "gpu_hours").rows() == [(taxonomy.PCIE, 2, 16.0)]


def test_chance_matches_are_those_of_events_moved_by_a_day() -> None:
    """Events that come every day at the same time match by accident as often as in truth."""
    daily = events(*({"at": 60 + 1440 * day} for day in (-1, 0, 1)))
    found = chance(attempts(FAILED, {**FAILED, "node_list": "n2"}), daily)
    assert (found.failed, found.matched, found.by_chance) == (2, 1, 1.0)
    assert (found.rate, found.true_share) == (0.5, 0.0)
    once = chance(attempts(FAILED), events({"at": 60}))
    assert (once.by_chance, once.true_share) == (0.0, 1.0)
    assert chance(attempts(), events()).true_share is None


@pytest.mark.parametrize("seed", range(3))
def test_attribution_finds_what_the_simulator_broke(seed: int) -> None:
    """Noticed failures get their cause and node, others do not, and few programs are excused."""
    plan = ClusterPlan(nodes=32, days=7.0, rate_per_node_day=0.3)
    record = simulate_cluster(plan, random.Random(seed))
    found = attribute(record.attempts, record.events)
    truth = record.truth.filter(pl.col("node").is_not_null()).rename({"cause": "true_cause"})
    both = found.join(truth, on=["job", "attempt"], how="left")
    broken = both.filter(pl.col("node").is_not_null())
    assert broken.height > 50, seed
    noticed = broken.filter("is_noticed")
    # The window misses the checks that come after five minutes: exp(-300/90) of them.
    right = noticed["causes"].list.contains(noticed["true_cause"]).sum()
    assert right > 0.9 * noticed.height, seed
    hidden = broken.filter(~pl.col("is_noticed") & (pl.col("state") == "FAILED"))
    assert hidden["is_hardware"].sum() <= 0.2 * hidden.height, seed
    innocent = both.filter(pl.col("node").is_null() & (pl.col("state") == "FAILED"))
    assert innocent["is_hardware"].sum() < 0.05 * innocent.height, seed
    named = broken.filter(pl.col("is_hardware") & (pl.col("culprits").list.len() > 0))
    assert named["culprits"].list.contains(named["node"]).sum() > 0.95 * named.height, seed
