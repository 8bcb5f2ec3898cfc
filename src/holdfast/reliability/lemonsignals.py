"""The seven signals of a bad node over four weeks, with the node hours that each has to be held against.

The names are the paper's. Beside them stand ``incidents``: what of the signals comes within a few hours on
one node is one thing that went wrong, seen from several sides, and must not count several times.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from holdfast.reliability.attribution import on_nodes
from holdfast.reliability.taxonomy import OUT, symptoms

DAYS = 28.0
TOGETHER_H = 6.0
"""What is closer in time is one incident."""
COUNTS = (
    "excl_jobid_count",
    "xid_cnt",
    "tickets",
    "out_count",
    "multi_node_node_fails",
    "single_node_node_fails",
    "incidents",
)
EXPOSURES = ("hours", "job_hours", "multi_hours", "single_hours", "single_jobs")


def signals(
    attributed: pl.DataFrame, events: pl.DataFrame, until: datetime, *, days: float = DAYS
) -> pl.DataFrame:
    """Return one row for each node that anything ran on, or happened to, in the days before ``until``."""
    since = until - timedelta(days=days)
    placed = _placed(attributed, since, until)
    is_now = pl.col("at").is_between(since, until, closed="left")
    seen = events.filter(is_now & pl.col("node").is_not_null())
    # Lists of excluded nodes often have no time: they are those of the jobs that are there now.
    unwanted = events.filter((pl.col("kind") == "exclusion") & (is_now | pl.col("at").is_null()))
    fails = _fails(attributed, since, until)
    parts = [
        _exposure(placed),
        _excluding(placed, unwanted.filter(pl.col("node").is_not_null())),
        _count(_xids(seen).unique(["node", "name"]), "xid_cnt"),
        _count(seen.filter(pl.col("kind") == "ticket"), "tickets"),
        _count(_outs(seen), "out_count"),
        _count(fails.filter(pl.col("nodes") > 1), "multi_node_node_fails"),
        _count(fails.filter(pl.col("nodes") <= 1), "single_node_node_fails"),
        _count(_incidents(seen, fails), "incidents"),
    ]
    nodes = pl.concat([part.select("node") for part in parts]).unique().sort("node")
    for part in parts:
        nodes = nodes.join(part, on="node", how="left")
    full = nodes.join(_out_hours(seen, until), on="node", how="left").with_columns(
        pl.exclude("node").fill_null(0)
    )
    hours = (days * 24 - pl.col("_out_h")).clip(lower_bound=0.0)
    return _finish(full.with_columns(hours=hours).drop("_out_h"))


def signals_of_outages(outages: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """Return the same for one system of a record that knows of no jobs: every failure is an outage."""
    hours = (until - since).total_seconds() / 3600
    inside = outages.filter(pl.col("at").is_between(since, until, closed="left"))
    known = outages.select("node").drop_nulls().unique().sort("node")
    silent = max(0, int(outages["system_nodes"].max() or 0) - known.height)  # type: ignore[arg-type]
    # Nodes that never failed are not in the record, but they are in the fleet.
    unseen = pl.DataFrame(
        {"node": [f"unseen {number}" for number in range(1, silent + 1)]}, schema=known.schema
    )
    nodes = pl.concat([known, unseen]).join(_count(inside, "out_count"), on="node", how="left")
    merged = _merge(inside.select("node", "at"))
    nodes = nodes.join(_count(merged, "incidents"), on="node", how="left").fill_null(0)
    absent = [pl.lit(0).alias(name) for name in (*COUNTS, *EXPOSURES) if name not in nodes.columns]
    return _finish(nodes.with_columns(absent).with_columns(hours=pl.lit(hours)))


def _placed(attributed: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """Return the attempts on their nodes, with the hours of each that lie in the window."""
    end = pl.coalesce("end", pl.lit(until))
    inside = attributed.filter(pl.col("start").is_not_null() & (pl.col("start") < until) & (end > since))
    hours = pl.min_horizontal(end, pl.lit(until)) - pl.max_horizontal("start", pl.lit(since))
    small = inside.select("job", "nodes", "node_list", "exclude", _h=hours.dt.total_microseconds() / 3.6e9)
    return on_nodes(small)


def _exposure(placed: pl.DataFrame) -> pl.DataFrame:
    single = pl.col("nodes") <= 1
    return placed.group_by("node").agg(
        pl.col("_h").sum().alias("job_hours"),
        pl.col("_h").filter(~single).sum().alias("multi_hours"),
        pl.col("_h").filter(single).sum().alias("single_hours"),
        single.sum().cast(pl.Int64).alias("single_jobs"),
    )


def _excluding(placed: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Return by how many jobs each node is not wanted, as events or as the jobs' own lists tell."""
    told = seen.select("node", "job")
    lists = placed.filter(pl.col("exclude").is_not_null()).select("job", node_list="exclude").unique()
    listed = on_nodes(lists).select("node", "job")
    return _count(pl.concat([told, listed]).unique(), "excl_jobid_count")


def _xids(seen: pl.DataFrame) -> pl.DataFrame:
    """Return the XIDs that speak of the node rather than of a program on it."""
    xids = seen.filter(pl.col("kind") == "xid")
    return symptoms(xids).filter(pl.col("row").is_not_null()).select("node", "at", "name")


def _outs(seen: pl.DataFrame) -> pl.DataFrame:
    """Return the times that a node was taken out; a new reason for a node that is out is none."""
    states = seen.filter(pl.col("kind") == "state").sort("node", "at", maintain_order=True)
    is_out = pl.col("name").str.to_uppercase().str.contains(OUT).fill_null(False)
    goes_on = is_out.shift(1) & (
        (pl.col("until").shift(1) >= pl.col("at")) | pl.col("until").shift(1).is_null()
    )
    return states.filter(is_out & ~goes_on.over("node").fill_null(False))


def _out_hours(seen: pl.DataFrame, until: datetime) -> pl.DataFrame:
    """Return for how long each node was out; where the end is not told, until its next state."""
    states = seen.filter(pl.col("kind") == "state").sort("node", "at", maintain_order=True)
    following = pl.col("at").shift(-1).over("node")
    end = pl.min_horizontal(pl.coalesce("until", following, pl.lit(until)), following, pl.lit(until))
    is_out = pl.col("name").str.to_uppercase().str.contains(OUT).fill_null(False)
    hours = (end - pl.col("at")).dt.total_microseconds() / 3.6e9
    return (
        states.with_columns(_h=hours.clip(lower_bound=0))
        .filter(is_out)
        .group_by("node")
        .agg(pl.col("_h").sum().alias("_out_h"))
    )


def _fails(attributed: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """Return the failures of attempts, with the node that caused each; those of nobody are left out."""
    failed = attributed.filter(pl.col("is_hardware") & pl.col("end").is_between(since, until, closed="left"))
    return (
        failed.select("nodes", at="end", node="culprits").explode("node").filter(pl.col("node").is_not_null())
    )


def _incidents(seen: pl.DataFrame, fails: pl.DataFrame) -> pl.DataFrame:
    # Maintenance is nobody's fault.
    outs = _outs(seen).filter(~pl.col("name").str.to_uppercase().str.starts_with("MAINT"))
    tickets = seen.filter(pl.col("kind") == "ticket")
    parts = (outs, tickets, _xids(seen), fails)
    return _merge(pl.concat([part.select("node", "at") for part in parts]))


def _merge(times: pl.DataFrame) -> pl.DataFrame:
    """Return the first moment of each row of events on a node that lie close together."""
    ordered = times.drop_nulls().sort("node", "at")
    gap = pl.col("at") - pl.col("at").shift(1).over("node")
    return ordered.filter((gap > timedelta(hours=TOGETHER_H)).fill_null(True))


def _count(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.group_by("node").len(name).with_columns(pl.col(name).cast(pl.Int64))


def _finish(table: pl.DataFrame) -> pl.DataFrame:
    jobs = pl.col("single_jobs")
    rate = pl.when(jobs > 0).then(pl.col("single_node_node_fails") / jobs)
    table = table.with_columns(single_node_node_failure_rate=rate)
    return table.select("node", *EXPOSURES, *COUNTS, "single_node_node_failure_rate")
