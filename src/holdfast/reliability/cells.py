"""Cells of text into times, whole numbers and durations, a column at a time.

A cell that means nothing is null, and so is one that cannot be read; what tells them apart is ``is_bad``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl

from holdfast.errors import InputError
from holdfast.reliability.tables import TIME

NOTHING = (
    "",
    "Unknown",
    "None",
    "N/A",
    "NONE",
    "unknown",
    "none",
    "null",
    "NULL",
    "(null)",
    "nan",
    "NaN",
    "NaT",
)
"""What Slurm, pandas and people write where there is nothing to say."""
NO_TIME = (*NOTHING, "0")
"""The same of times: zero seconds since 1970 is how a scheduler says that something has not happened."""
FORMATS = (
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S%:z",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.fZ",
)
"""The usual ways to write a time; the others are read one by one."""
_LAST_SECOND = 253_402_300_799
"""Of the year 9999."""
_DAY_S = 86_400
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def check_zone(zone: str) -> str:
    """Return the name of a time zone; raise InputError if there is none of that name."""
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # A folder of zones, such as "Europe", is an OSError.
        raise InputError(f"time zone is {zone!r}, expected a name such as 'UTC' or 'Europe/Berlin'") from None
    return zone


def strip(cells: pl.DataFrame, names: Iterable[str], nothing: Sequence[str] = NOTHING) -> pl.DataFrame:
    """Return a table of text whose cells have no space around them, and are null where they say nothing."""
    there = [name for name in names if name in cells.columns]
    bare = [pl.col(name).str.strip_chars() for name in there]
    return cells.with_columns(
        pl.when(cell.is_in(nothing)).then(None).otherwise(cell).alias(name)
        for name, cell in zip(there, bare, strict=True)
    )


def is_bad(raw: str, value: str) -> pl.Expr:
    """Say where a cell says something that could not be read."""
    return pl.col(raw).is_not_null() & pl.col(value).is_null()


# --- times ------------------------------------------------------------------------------------


def times(
    cells: pl.DataFrame, names: Iterable[str], zone: str, formats: Iterable[str] = FORMATS
) -> pl.DataFrame:
    """Return a table with the times of some columns of text, each named ``<column>_at``."""
    names, formats = list(names), list(formats)
    return rest_of_times(cells.with_columns(usual_times(names, zone, formats[0])), names, zone, formats)


def usual_times(names: Iterable[str], zone: str, pattern: str = FORMATS[0]) -> list[pl.Expr]:
    """Return how to read times in the usual format, which nearly all have."""
    return [usual_time(pl.col(name), zone, pattern).alias(f"{name}_at") for name in names]


def rest_of_times(
    cells: pl.DataFrame, names: Iterable[str], zone: str, formats: Iterable[str] = FORMATS
) -> pl.DataFrame:
    """Read the times that did not have the usual format."""
    formats = list(formats)
    for name in names:
        cells = _parse_rest(cells, name, zone, formats)
    return cells


def usual_time(cell: pl.Expr, zone: str, pattern: str = FORMATS[0]) -> pl.Expr:
    """Read times of one format; polars knows years that Python does not, and nobody means those."""
    at = _parse_any(cell, pattern, zone)
    return pl.when(at.is_between(pl.lit(_EARLIEST), pl.lit(_LATEST))).then(at)


def _parse_any(cell: pl.Expr, pattern: str, zone: str) -> pl.Expr:
    if pattern.endswith("z"):
        return cell.str.to_datetime(pattern, time_unit="us", time_zone="UTC", strict=False)
    local = cell.str.to_datetime(pattern, time_unit="us", strict=False, cache=False)  # Few come twice.
    if zone == "UTC" or pattern.endswith("Z"):
        return local.dt.replace_time_zone("UTC")
    # In the hour that comes twice a year the first is meant; in the one that never comes, none.
    placed = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return placed.dt.convert_time_zone("UTC")


def _parse_rest(cells: pl.DataFrame, name: str, zone: str, formats: list[str]) -> pl.DataFrame:
    """Read the cells that the first format did not fit, which are few."""
    at = f"{name}_at"
    places = cells.select(is_bad(name, at).arg_true()).to_series()
    if places.is_empty():
        return cells
    some = _parse_odd(cells.select(name, at)[places], name, zone, formats)
    return cells.with_columns(
        cells[name].clone().scatter(places, some[name]), cells[at].clone().scatter(places, some[at])
    )


def _parse_odd(cells: pl.DataFrame, name: str, zone: str, formats: list[str]) -> pl.DataFrame:
    """Read cells with all formats, as seconds since 1970, and one by one."""
    at = f"{name}_at"
    cells = strip(cells, [name], NO_TIME)
    for pattern in formats:
        missing = pl.when(is_bad(name, at)).then(pl.col(name))
        cells = cells.with_columns(pl.col(at).fill_null(usual_time(missing, zone, pattern)))
    cells = cells.with_columns(pl.col(at).fill_null(_epoch(name)))
    words = cells.filter(is_bad(name, at))[name].unique().to_list()
    found = [at_time(word, zone) for word in words]
    table = pl.DataFrame({name: words, "_rest": found}, schema={name: pl.String, "_rest": TIME})
    joined = cells.join(table, on=name, how="left", maintain_order="left")
    return joined.with_columns(pl.col(at).fill_null(pl.col("_rest"))).drop("_rest")


def _epoch(name: str) -> pl.Expr:
    seconds = pl.col(name).cast(pl.Float64, strict=False)
    is_second = seconds.is_between(0, _LAST_SECOND)
    micros = (pl.when(is_second).then(seconds) * 1e6).round().cast(pl.Int64, strict=False)
    return micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def at_time(text: str, zone: str) -> datetime | None:
    """Return a time in any form that ISO 8601 knows, or None; one without an offset is of the zone."""
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo:
            return value.astimezone(UTC)
        at = value.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        is_there = (
            at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == value
        )  # Summer time leaves out an hour.
        return at if is_there else None
    except (ValueError, OverflowError):
        return None


# --- numbers ----------------------------------------------------------------------------------


def whole(name: str, *, most: int) -> pl.Expr:
    """Return a column of text as whole numbers from 0 to ``most``."""
    number = pl.col(name).cast(pl.Float64, strict=False)
    is_whole = number.is_between(0, most) & (number == number.floor())
    return pl.when(is_whole).then(number).cast(pl.Int64, strict=False)


def duration_s(name: str) -> pl.Expr:
    """Return Slurm's ``1-02:03:04``, ``02:03:04``, ``03:04.567`` or plain seconds, in seconds."""
    parts = pl.col(name).str.extract_groups(
        r"^(?:(?:(?<d>[0-9]{1,6})-)?(?<h>[0-9]{1,6}):)?(?<m>[0-9]{1,6}):(?<s>[0-9]{1,6}(?:\.[0-9]+)?)$"
    )
    field = {key: parts.struct.field(key).cast(pl.Float64, strict=False) for key in "dhms"}
    clock = field["d"].fill_null(0) * _DAY_S + field["h"].fill_null(0) * 3600 + field["m"] * 60 + field["s"]
    plain = pl.col(name).cast(pl.Float64, strict=False)
    return clock.fill_null(pl.when(plain.is_between(0, math.pow(10, 10))).then(plain))
