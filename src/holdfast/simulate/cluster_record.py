"""What a simulated cluster leaves behind: the tables that a real one would, and the truth beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from holdfast.reliability.tables import ATTEMPTS, EVENTS, TIME, Columns

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
TRUTH: Columns = {
    "job": pl.String,
    "attempt": pl.UInt32,
    "node": pl.String,  # That failed under it; null: none did.
    "cause": pl.String,  # Row of the taxonomy.
    "is_noticed": pl.Boolean,  # By a health check.
    "preemptor": pl.String,
    "is_second_order": pl.Boolean,  # The preemptor had been restarted because of a failure.
}
"""One row for each attempt that a failure or a preemption ended."""


@dataclass(frozen=True)
class ClusterRecord:
    """The tables, the truth, and where the GPU time went."""

    attempts: pl.DataFrame
    events: pl.DataFrame
    truth: pl.DataFrame
    spent_gpu_s: dict[str, float]
    """GPU seconds used, idle, out of service."""


class Recorder:
    """Collects rows while the simulation runs."""

    def __init__(self) -> None:
        self._attempts: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._truth: list[dict[str, Any]] = []

    def attempt(self, **row: Any) -> None:
        """Note an attempt; times are seconds."""
        self._attempts.append(row)

    def event(self, **row: Any) -> dict[str, Any]:
        """Note an event; return the row, whose ``until`` may come later."""
        self._events.append(row)
        return row

    def truth(self, **row: Any) -> None:
        """Note what really ended an attempt."""
        self._truth.append(row)

    def finish(self, until_s: float, spent_gpu_s: dict[str, float]) -> ClusterRecord:
        """Return the tables; what lies after the end is not known yet."""
        seen = [row for row in self._events if row["at"] < until_s]
        return ClusterRecord(
            attempts=_table(self._attempts, ATTEMPTS).sort("submit", "job", "attempt"),
            events=_table(seen, EVENTS).sort("at", "node", "name"),
            truth=_table(self._truth, TRUTH),
            spent_gpu_s=spent_gpu_s,
        )


def node_name(node: int) -> str:
    """Return the name of a node by its number."""
    return f"n{node:04d}"


def node_list(nodes: Sequence[int]) -> str:
    """Return the nodes as Slurm writes them: ``n[0001-0003,0007]``."""
    if len(nodes) == 1:
        return node_name(nodes[0])
    spans: list[list[int]] = []
    for node in sorted(nodes):
        if spans and node == spans[-1][1] + 1:
            spans[-1][1] = node
        else:
            spans.append([node, node])
    shown = (f"{low:04d}" if low == high else f"{low:04d}-{high:04d}" for low, high in spans)
    return f"n[{','.join(shown)}]"


def node_number(name: str) -> int:
    """Return the number of a node by its name."""
    match = re.fullmatch(r"n(\d+)", name)
    assert match is not None, name
    return int(match[1])


def _table(rows: list[dict[str, Any]], columns: Columns) -> pl.DataFrame:
    """Return the rows as a table; seconds become times."""
    made = {}
    for name, kind in columns.items():
        values = [row.get(name) for row in rows]
        if kind == TIME:
            made[name] = _times(name, values)
        else:
            made[name] = pl.Series(name, values, dtype=pl.String if isinstance(kind, pl.Enum) else kind).cast(
                kind
            )
    return pl.DataFrame(made)


def _times(name: str, seconds: list[float | None]) -> pl.Series:
    base = int(EPOCH.timestamp()) * 1_000_000
    made = [None if value is None else base + round(value * 1e6) for value in seconds]
    return pl.Series(name, made, dtype=pl.Int64).cast(TIME)
