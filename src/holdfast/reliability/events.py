"""Tables of text into the table of events: the one way that every reader of what happened to nodes takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from holdfast.reliability import cells as read
from holdfast.reliability.tables import EVENTS, SEVERITIES
from holdfast.reliability.told import Tally, shown

TEXTS = ("node", "name", "severity", "job", "text")
TIMES = ("at", "until")


def convert(
    raw: pl.DataFrame, kind: str, zone: str, tally: Tally, *, needs_time: bool = True
) -> pl.DataFrame:
    """Return the good rows of a table of text and tell the others; ``severity`` is in our words already."""
    missing = [name for name in (*TEXTS, *TIMES) if name not in raw.columns]
    table = raw.with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
    table = read.times(read.strip(table, ["node", "job", *TIMES]), TIMES, zone)
    severity = pl.when(pl.col("severity").is_in(SEVERITIES)).then(pl.col("severity"))
    table = table.with_columns(severity.alias("severity_read"))
    bad = pl.col("node").is_null() | read.is_bad("severity", "severity_read")
    bad |= read.is_bad("at", "at_at") | read.is_bad("until", "until_at")
    if needs_time:
        bad |= pl.col("at_at").is_null()
    table = table.with_columns(bad.fill_null(False).alias("_is_broken"))
    tally.tell_all(table.filter("_is_broken"), _explain)
    good = table.filter(pl.col("_is_broken").not_())
    return good.select(
        (pl.lit(kind) if name == "kind" else _cell(name)).cast(dtype).alias(name)
        for name, dtype in EVENTS.items()
    )


def _cell(name: str) -> pl.Expr:
    if name in TIMES:
        return pl.col(f"{name}_at")
    return pl.col("severity_read") if name == "severity" else pl.col(name)


def _explain(row: dict[str, Any]) -> str:
    if row["node"] is None:
        return "names no node"
    for name in TIMES:
        if row[name] is not None and row[f"{name}_at"] is None:
            return f"{'end' if name == 'until' else 'time'} is {shown(row[name])}, expected a time"
    if row["severity"] is not None and row["severity_read"] is None:
        return f"result is {shown(row['severity'])}, expected 0, 1, 2 or 3"
    return "says no time"


def finish(pieces: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the table of events of one source."""
    return pl.concat([pl.DataFrame(schema=dict(EVENTS)), *pieces])
