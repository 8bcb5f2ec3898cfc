"""Tables in files, row by row: CSV, JSON lines, Parquet; cells as numbers, or one line that says why not."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InputError, MissingError

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_MOST = 2**63
_MOST_WORDS = 40

Row = tuple[int, dict[str, Any]]
"""Number of its line, and its cells."""


def csv_rows(path: Path, text: str) -> Iterator[Row]:
    """Yield the rows of a CSV."""
    try:
        blank = len(text) - len(text.lstrip("\r\n"))
        skipped = text[:blank].count("\n")
        reader = csv.DictReader(io.StringIO(text[blank:], newline=""), strict=True)
        names = [name.strip() for name in reader.fieldnames or ()]
        for name in sorted({name for name in names if name and names.count(name) > 1}):
            raise InputError(f"{path}: two columns are called {name!r}, expected one")
        for cells in reader:
            row = reader.line_num + skipped
            # Cells beyond the header are no column's; those of an unnamed one, an index for example, no harm.
            found: dict[Any, Any] = dict(cells)
            if any(found.pop(None, ())):
                raise InputError(f"{path}, row {row}: more cells than the header has columns")
            yield row, {name.strip(): cell for name, cell in found.items()}
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from error


def json_rows(path: Path, text: str) -> Iterator[Row]:
    """Yield the objects of JSON lines."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{path}, row {number}: {error}, expected one JSON object") from error


def parquet_rows(path: Path, data: bytes) -> Iterator[Row]:
    """Yield the rows of a Parquet file."""
    try:
        import polars
    except ImportError:
        raise MissingError(f"{path}: reading Parquet needs polars: pip install polars") from None
    try:
        table = polars.read_parquet(io.BytesIO(data))
    except Exception as error:  # Its errors share no base class.
        words = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path}: cannot be read as Parquet: {words[0]}") from error
    yield from enumerate(table.iter_rows(named=True), start=1)


def name_columns(names: Sequence[str]) -> str:
    """Return the names of columns in words."""
    return ", ".join(repr(name) for name in names) or "none"


def whole(path: Path, row: int, name: str, cell: Any) -> int:
    """Return a cell that has to be a whole number."""
    try:  # Not by way of a float, which has 53 bits.
        value = int(cell) if isinstance(cell, int | str) else None
    except ValueError:
        value = None
    number = number_in(path, row, name, cell) if value is None else value
    if number != int(number) or abs(number) >= _MOST:
        said = str(cell)[:_MOST_WORDS]
        raise InputError(f"{path}, row {row}: {name} is {said}, expected a whole number below 2^63")
    return int(number)


def number_in(path: Path, row: int, name: str, cell: Any) -> float:
    """Return a cell that has to be a finite number."""
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        said = "empty" if cell in (None, "") else repr(cell)[:_MOST_WORDS]
        raise InputError(f"{path}, row {row}: {name} is {said}, expected a number") from None
    if not math.isfinite(value):
        raise InputError(f"{path}, row {row}: {name} is {value}, expected a finite number")
    return value
