"""Read step times from what people have: a table (CSV, JSON lines, Parquet), a log of Megatron or torchtitan.

A series has one or more attempts; within one, steps only grow. What cannot be used is refused with its row.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InputError, MissingError
from holdfast.observe.logs import Line, find_format
from holdfast.values import StepTime

STEP_NAMES = ("step", "iteration", "iter")
TIME_NAMES = {
    "duration_s": 1.0,
    "step_time_s": 1.0,
    "iteration_time_s": 1.0,
    "duration_ms": 1e-3,
    "step_time_ms": 1e-3,
    "iteration_time_ms": 1e-3,
    "duration": 1.0,
    "step_time": 1.0,
    "iteration_time": 1.0,
}
"""What a column of step times may be called, with its unit in seconds; the first that is there is taken."""
WORK_NAMES = ("tokens", "work", "sequence_length")
ATTEMPT_NAME = "attempt"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Which columns of a table to read; None: one of the usual names."""

    time: str | None = None
    unit_s: float | None = None
    """Of the times; None: as the name says, else seconds."""
    step: str | None = None
    work: str | None = None


Series = list[list[StepTime]]
"""Attempts, in order."""
Row = tuple[int, dict[str, Any]]
"""Number of its line, and its cells."""


def read_series(path: Path, columns: Columns | None = None) -> Series:
    """Read the step times of a file."""
    columns = columns or Columns()
    if path.suffix == ".parquet":
        return _series(path, _parquet_rows(path), columns)
    text = _read(path)
    if not text.strip():
        raise InputError(f"{path}: it is empty, expected step times")
    if path.suffix in (".jsonl", ".ndjson", ".json") or text.lstrip().startswith("{"):
        return _series(path, _json_rows(path, text), columns)
    read_log = find_format(text)
    if read_log is not None:
        return _log_series(path, read_log(text))
    return _series(path, _csv_rows(path, text), columns)


# --- tables -----------------------------------------------------------------------------------


def _series(path: Path, rows: Iterable[Row], columns: Columns) -> Series:
    attempts: Series = []
    last_attempt: Any = None
    names: _Names | None = None
    for number, cells in rows:
        if names is None:
            names = _find_names(path, list(cells), columns)
        found = _step_time(path, number, cells, names)
        attempt = cells.get(ATTEMPT_NAME)
        before = attempts[-1][-1].step if attempts else None
        if before is None or attempt != last_attempt or (found.step <= 1 and before > found.step):
            attempts.append([])
        elif found.step <= before:
            raise InputError(
                f"{path}, row {number}: step is {found.step} after {before}, expected steps that grow "
                f"(a new attempt begins at step 1, or with a column {ATTEMPT_NAME!r})"
            )
        last_attempt = attempt
        attempts[-1].append(found)
    if not attempts:
        raise InputError(f"{path}: it has no rows, expected step times")
    return attempts


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    step: str | None
    time: str
    unit_s: float
    work: str | None


def _find_names(path: Path, given: list[str], columns: Columns) -> _Names:
    for wanted in (columns.time, columns.step, columns.work):
        if wanted is not None and wanted not in given:
            raise InputError(f"{path}: no column {wanted!r}, expected one of {_list(given)}")
    time = columns.time or next((name for name in TIME_NAMES if name in given), None)
    if time is None:
        raise InputError(
            f"{path}: no column of step times among {_list(given)}, "
            "expected 'duration_s' or one named by --column"
        )
    return _Names(
        step=columns.step or next((name for name in STEP_NAMES if name in given), None),
        time=time,
        unit_s=columns.unit_s or TIME_NAMES.get(time, 1.0),
        work=columns.work or next((name for name in WORK_NAMES if name in given), None),
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def _step_time(path: Path, number: int, cells: dict[str, Any], names: _Names) -> StepTime:
    step = number if names.step is None else _number(path, number, names.step, cells.get(names.step))
    if step != int(step):
        raise InputError(f"{path}, row {number}: {names.step} is {step:g}, expected a whole number")
    duration = _number(path, number, names.time, cells.get(names.time))
    if duration <= 0:
        raise InputError(f"{path}, row {number}: {names.time} is {duration:g}, expected more than 0")
    work = None if names.work is None else _number(path, number, names.work, cells.get(names.work))
    if work is not None and work <= 0:
        raise InputError(f"{path}, row {number}: {names.work} is {work:g}, expected more than 0")
    return StepTime(step=int(step), duration_s=duration * names.unit_s, work=work)


def _number(path: Path, row: int, name: str, cell: Any) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise InputError(f"{path}, row {row}: {name} is {cell!r}, expected a number") from None
    if not math.isfinite(value):
        raise InputError(f"{path}, row {row}: {name} is {value}, expected a finite number")
    return value


# --- files ------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: expected a file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read: it is not text in UTF-8") from error


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    try:
        reader = csv.DictReader(io.StringIO(text), restkey="", strict=True)
        for cells in reader:
            if "" in cells:
                raise InputError(f"{path}, row {reader.line_num}: more cells than the header has columns")
            yield reader.line_num, {name.strip(): cell for name, cell in cells.items()}
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from error


def _json_rows(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{path}, row {number}: {error}, expected one JSON object") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import polars
    except ImportError:
        raise MissingError(f"{path}: reading Parquet needs polars: pip install polars") from None
    try:
        table = polars.read_parquet(path)
    except Exception as error:  # Its errors share no base class.
        words = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path}: cannot be read as Parquet: {words[0]}") from error
    yield from enumerate(table.iter_rows(named=True), start=1)


def _log_series(path: Path, lines: Sequence[Line]) -> Series:
    attempts: Series = []
    for line in lines:
        if not (math.isfinite(line.duration_s) and line.duration_s > 0):
            raise InputError(f"{path}, row {line.row}: a step of {line.duration_s} s, expected more than 0")
        # A job that goes on from a checkpoint repeats steps.
        if not attempts or line.step <= attempts[-1][-1].step:
            attempts.append([])
        attempts[-1].append(StepTime(step=line.step, duration_s=line.duration_s, work=line.work))
    return attempts
