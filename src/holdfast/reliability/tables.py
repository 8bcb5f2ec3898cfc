"""The tables that everything here is computed from, and what a reader returns.

Whatever a cluster keeps is read into three tables: attempts of jobs, events on nodes, outages of nodes.
Times are UTC. A cell that a source does not tell is null; no column is ever missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

STATES = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "RUNNING",
    "SUSPENDED",
    "TIMEOUT",
)
"""Of an attempt, in Slurm's words."""
KINDS = ("check", "xid", "state", "ticket", "exclusion")
"""Of an event: a health check's result, a line of the kernel's log about a GPU, a change of the scheduler's
mind about a node, a repair ticket, a job's wish not to get the node."""
SEVERITIES = ("ok", "warning", "critical", "unknown")

TIME = pl.Datetime("us", "UTC")
Columns = Mapping[str, pl.DataType | type[pl.DataType]]

ATTEMPTS: Columns = {
    "job": pl.String,  # The scheduler's id, which a requeued job keeps; tasks of arrays are "123_4".
    "attempt": pl.UInt32,  # 1, 2, …: in the order of their starts.
    "name": pl.String,
    "user": pl.String,
    "account": pl.String,
    "partition": pl.String,
    "qos": pl.String,
    "priority": pl.Int64,
    "state": pl.Enum(STATES),
    "submit": TIME,
    "eligible": TIME,
    "start": TIME,  # Null: it never ran.
    "end": TIME,  # Null: it still runs, or it is not known.
    "nodes": pl.UInt32,
    "gpus": pl.UInt32,
    "node_list": pl.String,  # As the scheduler writes it: "gpu[001-004,007]".
    "exclude": pl.String,  # The same, of the nodes that it did not want.
    "preemptor": pl.String,  # The job for whose sake it was preempted, where that is logged.
}
"""One row for each time that a job was started, or waits to be."""

EVENTS: Columns = {
    "node": pl.String,
    "at": TIME,
    "until": TIME,
    "kind": pl.Enum(KINDS),
    "name": pl.String,  # Of the check, "xid 79", the state ("DOWN", "DRAIN"), the ticket's id.
    "severity": pl.Enum(SEVERITIES),
    "job": pl.String,  # The one that was running, or that excludes the node.
    "text": pl.String,
}
"""One row for each thing that was noticed about one node."""

OUTAGES: Columns = {
    "system": pl.String,
    "node": pl.String,
    "at": TIME,
    "fixed": TIME,
    "down_min": pl.Float64,
    "cause": pl.String,  # Facilities, Hardware, Human Error, Network, Undetermined, Software, or null.
    "detail": pl.String,  # In the source's own words: "Memory Dimm".
    "role": pl.String,  # "front end", "compute", …, where it is known.
    "system_nodes": pl.UInt32,  # How many nodes the system has.
}
"""One row for each failure in a record that knows of no jobs."""

MOST_TOLD = 20
"""Broken rows that are kept word by word; the others are counted."""


@dataclass(frozen=True)
class Broken:
    """A row that could not be read."""

    place: str
    """File and row."""
    why: str


@dataclass(frozen=True)
class Reading:
    """What came out of one source: rows in the table, broken and left out add up.

    Where a row names several nodes (a job's exclude list), the table has one row for each of them instead.
    """

    table: pl.DataFrame
    rows: int
    """That the source has, broken ones as well."""
    broken: int = 0
    told: tuple[Broken, ...] = field(default=())
    """The first of them."""
    left_out: int = 0
    """Understood, and of no table: steps of jobs, repeated headers, second copies, events of a cluster."""
