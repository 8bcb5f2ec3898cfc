"""Read step times from what people have: a table (CSV, JSON lines, Parquet), a log of Megatron or torchtitan.

A series has one or more attempts; within one, steps only grow. What cannot be used is refused with its row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InputError
from holdfast.observe.files import decode, read_bytes
from holdfast.observe.logs import Line, find_format
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
from holdfast.telemetry import StepTime

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
_LEAST, _MOST = 1e-12, 1e12
"""Of times in seconds, and of work."""
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


def read_series(path: Path, columns: Columns | None = None) -> Series:
    """Read the step times of a file."""
    columns = columns or Columns()
    data = read_bytes(path)
    if path.suffix == ".parquet":
        return _series(path, parquet_rows(path, data), columns)
    if not data.strip():
        raise InputError(f"{path}: it is empty, expected step times")
    lenient = data.decode("utf-8", "replace")
    read_log = None if path.suffix in JSON_SUFFIXES or _is_table(lenient, columns) else find_format(lenient)
    if read_log is not None:
        if columns != Columns():
            raise InputError(f"{path}: it is a log, which has no columns: expected no --column and the like")
        return _log_series(path, read_log(lenient))
    text = decode(path, data, encoding="utf-8-sig")
    if path.suffix in JSON_SUFFIXES or text.lstrip().startswith("{"):
        return _series(path, json_rows(path, text), columns)
    return _series(path, csv_rows(path, text), columns)


def _is_table(text: str, columns: Columns) -> bool:
    """Say whether a text begins with the header of a table: then no cell makes it a log."""
    header = next((line for line in text.lstrip("\ufeff").splitlines() if line.strip()), "")
    names = {name.strip(' "') for name in header.split(",")}
    return columns.time in names or not names.isdisjoint(TIME_NAMES)


# --- tables -----------------------------------------------------------------------------------


def _series(path: Path, rows: Iterable[Row], columns: Columns) -> Series:
    attempts: dict[tuple[Any, int], list[StepTime]] = {}
    restarts: Counter[Any] = Counter()
    names: _Names | None = None
    for number, cells in rows:
        if names is None:
            names = _find_names(path, list(cells), columns)
        found = _step_time(path, number, cells, names)
        attempt = str(cells.get(ATTEMPT_NAME))
        steps = attempts.setdefault((attempt, restarts[attempt]), [])
        if steps and found.step <= 1 and found.step < steps[-1].step:
            restarts[attempt] += 1
            attempts[attempt, restarts[attempt]] = steps = []
        elif steps and found.step <= steps[-1].step:
            raise InputError(
                f"{path}, row {number}: step is {found.step} after {steps[-1].step}, expected steps that "
                f"grow (a new attempt begins at step 1, or with a column {ATTEMPT_NAME!r})"
            )
        steps.append(found)
    if not attempts:
        raise InputError(f"{path}: it has no rows, expected step times")
    return list(attempts.values())


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    step: str | None
    time: str
    unit_s: float
    work: str | None


def _find_names(path: Path, given: list[str], columns: Columns) -> _Names:
    for wanted in (columns.time, columns.step, columns.work):
        if wanted is not None and wanted not in given:
            raise InputError(f"{path}: no column {wanted!r}, expected one of {name_columns(given)}")
    time = columns.time or next((name for name in TIME_NAMES if name in given), None)
    if time is None:
        raise InputError(
            f"{path}: no column of step times among {name_columns(given)}, "
            "expected 'duration_s' or one named by --column"
        )
    return _Names(
        step=columns.step or next((name for name in STEP_NAMES if name in given), None),
        time=time,
        unit_s=columns.unit_s or TIME_NAMES.get(time, 1.0),
        work=columns.work or next((name for name in WORK_NAMES if name in given), None),
    )


def _step_time(path: Path, number: int, cells: dict[str, Any], names: _Names) -> StepTime:
    step = number if names.step is None else whole(path, number, names.step, cells.get(names.step))
    duration_s = names.unit_s * _positive(path, number, names.time, cells, names.unit_s)
    work = None if names.work is None else _positive(path, number, names.work, cells, 1.0)
    return StepTime(step=step, duration_s=duration_s, work=work)


def _positive(path: Path, row: int, name: str, cells: dict[str, Any], unit: float) -> float:
    value = number_in(path, row, name, cells.get(name))
    if value <= 0:
        raise InputError(f"{path}, row {row}: {name} is {value:g}, expected more than 0")
    if not _LEAST <= value * unit <= _MOST:
        raise InputError(
            f"{path}, row {row}: {name} is {value:g}, expected {_LEAST / unit:g} to {_MOST / unit:g}"
        )
    return value


# --- logs -----------------------------------------------------------------------------------


def _log_series(path: Path, lines: Sequence[Line]) -> Series:
    attempts: Series = []
    for line in lines:
        if not (math.isfinite(line.duration_s) and line.duration_s > 0):
            raise InputError(f"{path}, row {line.row}: a step of {line.duration_s} s, expected more than 0")
        # A job that goes on from a checkpoint repeats steps.
        if not attempts or line.step <= attempts[-1][-1].step:
            attempts.append([])
        attempts[-1].append(StepTime(step=line.step, duration_s=line.duration_s, work=line.work))
    if not attempts:
        raise InputError(f"{path}: it is a log without a step that was timed, expected step times")
    return attempts
