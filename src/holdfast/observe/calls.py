"""Read who called which collective when, from a table: CSV, JSON lines or Parquet.

A row is a call: its time, its operation and, where known, its bytes, its group and the rank that made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.observe.files import decode, read_bytes
from holdfast.observe.tables import (
    JSON_SUFFIXES,
    Row,
    csv_rows,
    json_rows,
    name_columns,
    number_in,
    parquet_rows,
    whole,
)

TIME_NAMES = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9}
"""What a column of times may be called, with its unit in seconds; the first that is there is taken."""
OP_NAMES = ("op", "type")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a collective."""

    time_s: float
    """On the rank's own clock, from whenever that counts."""
    kind: tuple[str, ...]
    """What tells calls apart: the operation, its bytes and its group, as far as they are known."""


def read_calls(path: Path) -> dict[int, list[Call]] | None:
    """Return the calls of each rank in a file, in their order; None if it is no table of calls."""
    rows = _rows(path)
    first = next(rows, None)
    if first is None or not _is_of_calls(first[1]):
        return None
    calls: dict[int, list[Call]] = {}
    for row, cells in chain([first], rows):
        rank = whole(path, row, "rank", cells["rank"]) if "rank" in cells else 0
        mine = calls.setdefault(rank, [])
        call = _call(path, row, cells)
        if mine and call.time_s < mine[-1].time_s:
            raise InputError(
                f"{path}, row {row}: time is {call.time_s:g} s after {mine[-1].time_s:g} s, "
                "expected the calls of a rank in the order of time"
            )
        mine.append(call)
    return calls


def is_table(path: Path) -> bool:
    """Say whether a file may be a table of calls, by its first line."""
    if path.suffix == ".parquet":
        return True
    first = read_bytes(path).lstrip(b"\xef\xbb\xbf \r\n").split(b"\n", 1)[0]
    has_time = any(name.encode() in first for name in TIME_NAMES)
    return has_time and any(name.encode() in first for name in OP_NAMES)


def _rows(path: Path) -> Iterator[Row]:
    data = read_bytes(path)
    if path.suffix == ".parquet":
        return parquet_rows(path, data)
    text = decode(path, data, encoding="utf-8-sig")
    is_json = path.suffix in JSON_SUFFIXES or text.lstrip().startswith("{")
    return json_rows(path, text) if is_json else csv_rows(path, text)


def _is_of_calls(cells: dict[str, object]) -> bool:
    return not set(cells).isdisjoint(TIME_NAMES) and not set(cells).isdisjoint(OP_NAMES)


def _call(path: Path, row: int, cells: dict[str, object]) -> Call:
    time = next((name for name in TIME_NAMES if name in cells), None)
    op = next((name for name in OP_NAMES if cells.get(name) not in (None, "")), None)
    if time is None or op is None:
        raise InputError(
            f"{path}, row {row}: no time or no operation among {name_columns(list(cells))}, "
            "expected 'time_s' and 'op'"
        )
    extra = (str(cells[name]) for name in ("bytes", "group") if cells.get(name) not in (None, ""))
    seconds = TIME_NAMES[time] * number_in(path, row, time, cells[time])
    return Call(time_s=seconds, kind=(str(cells[op]), *extra))
