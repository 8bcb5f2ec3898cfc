"""Failure records as Los Alamos National Laboratory keeps them (LA-UR-05-7318) into the table of outages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from holdfast.errors import InputError
from holdfast.reliability import cells as read
from holdfast.reliability.opening import opened
from holdfast.reliability.rawtables import open_table
from holdfast.reliability.sacct import choose
from holdfast.reliability.tables import OUTAGES, Reading
from holdfast.reliability.told import Tally, shown

CAUSES = ("Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software")
"""One column each; that which is filled is the cause, and says more in its cell."""
FIELDS = {
    "system": ("system",),
    "node": ("nodenumz", "nodenum"),
    "at": ("prob started", "prob started (mm/dd/yy hh:mm)"),
    "fixed": ("prob fixed", "prob fixed (mm/dd/yy hh:mm)"),
    "down_min": ("down time", "down time (min)"),
    "role": ("purpose", "node purpose"),
    "system_nodes": ("nodes",),
    **{cause: (cause.lower(),) for cause in CAUSES},
}
_FORMATS = ("%m/%d/%y %H:%M", "%m/%d/%Y %H:%M", *read.FORMATS)
"""Short years first: to the long pattern, 03 is the year 3."""
_MOST = 2**32 - 1


def is_lanl(names: Sequence[str]) -> bool:
    """Say whether a table with these columns is such a record."""
    columns = choose(names, FIELDS)
    return "node" in columns and "at" in columns and any(cause in columns for cause in CAUSES)


def read_lanl(path: Path, *, timezone: str = "UTC") -> Reading:
    """Read a file of failure records."""
    with opened(path) as stream:
        return parse_lanl(stream, str(path), timezone=timezone)


def parse_lanl(stream: BinaryIO, place: str, *, timezone: str = "UTC") -> Reading:
    """Read failure records; raise InputError if the columns are others."""
    zone = read.check_zone(timezone)
    raw = open_table(stream, place)
    if not is_lanl(raw.names):
        raise InputError(
            f"{place}, row 1: expected columns System, nodenumz, Prob Started and causes of failures"
        )
    tally = Tally(place)
    columns = choose(raw.names, FIELDS)
    pieces = [_convert(frame(tally), zone, tally) for frame in raw.frames(columns)]
    return tally.reading(pl.concat([pl.DataFrame(schema=dict(OUTAGES)), *pieces]))


def _convert(piece: pl.DataFrame, zone: str, tally: Tally) -> pl.DataFrame:
    table = piece.with_columns(
        pl.lit(None, pl.String).alias(name) for name in FIELDS if name not in piece.columns
    )
    table = read.strip(table, ["system", "node", "at", "fixed", "down_min", "system_nodes"], read.NOTHING)
    table = read.strip(table, CAUSES, ("",))
    table = read.times(table, ["at", "fixed"], zone, _FORMATS)
    minutes = pl.col("down_min").cast(pl.Float64, strict=False)
    table = table.with_columns(
        pl.when(minutes.is_between(0, 1e9)).then(minutes).alias("down_min_read"),
        read.whole("system_nodes", most=_MOST).alias("system_nodes_read"),
    )
    bad = pl.col("node").is_null() | pl.col("at_at").is_null() | read.is_bad("fixed", "fixed_at")
    bad |= read.is_bad("down_min", "down_min_read") | read.is_bad("system_nodes", "system_nodes_read")
    bad |= (pl.col("fixed_at") < pl.col("at_at")).fill_null(False)
    table = table.with_columns(bad.fill_null(False).alias("_is_broken"))
    tally.tell_all(table.filter("_is_broken"), _explain)
    return table.filter(pl.col("_is_broken").not_()).select(_columns())


def _columns() -> list[pl.Expr]:
    took = (pl.col("fixed_at") - pl.col("at_at")).dt.total_minutes()
    cause = pl.coalesce(pl.when(pl.col(cause).is_not_null()).then(pl.lit(cause)) for cause in CAUSES)
    # Node 0 is the one that people log in to, whatever its purpose says.
    is_front = (pl.col("node") == "0") | pl.col("role").str.contains(
        r"(?:^|[. ])(?:fe|front|login)"
    ).fill_null(False)
    cells = [
        pl.col("system"),
        pl.col("node"),
        pl.col("at_at").alias("at"),
        pl.col("fixed_at").alias("fixed"),
        pl.coalesce("down_min_read", took).alias("down_min"),
        cause.alias("cause"),
        pl.coalesce(*CAUSES).alias("detail"),
        pl.when(is_front).then(pl.lit("front end")).otherwise(pl.col("role")).alias("role"),
        pl.col("system_nodes_read").alias("system_nodes"),
    ]
    return [cell.cast(dtype) for cell, dtype in zip(cells, OUTAGES.values(), strict=True)]


def _explain(row: dict[str, Any]) -> str:
    if row["node"] is None:
        return "names no node"
    if row["at_at"] is None:
        return f"Prob Started is {shown(row['at'])}, expected M/D/YYYY H:MM"
    if row["fixed"] is not None and row["fixed_at"] is None:
        return f"Prob Fixed is {shown(row['fixed'])}, expected M/D/YYYY H:MM"
    if row["fixed_at"] is not None and row["fixed_at"] < row["at_at"]:
        return f"Prob Fixed {shown(row['fixed'])} is before Prob Started {shown(row['at'])}"
    name = "down_min" if row["down_min"] is not None and row["down_min_read"] is None else "system_nodes"
    return f"{name} is {shown(row[name])}, expected a number that is not negative"
