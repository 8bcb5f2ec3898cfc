"""Traces of operations: a row for every forward, backward, transfer and update of every worker.

CSV, JSON lines or Parquet, with a column each for the data-parallel rank, the stage, the step, the operation,
its start and its duration; usual names are known. Times are seconds of a clock that all workers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

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

NAMES: dict[str, tuple[str, ...]] = {
    "dp": ("dp_rank", "dp"),
    "stage": ("stage", "pp_rank", "pp"),
    "step": ("step", "iteration"),
    "op": ("optype", "op_type", "op", "name"),
    "start": ("start_ts", "start_s", "start"),
    "duration": ("duration", "duration_s"),
    "rank": ("rank",),
    "number": ("seq_id", "seq", "micro_batch", "mb_id"),
    "chunk": ("gmc", "chunk"),
}
"""What a column may be called; the first that is there is taken."""
_NEEDED = ("dp", "stage", "step", "op", "start", "duration")
_MOST_PLACES = 1_000_000
_LONGEST_S = 1e7

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class OpTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, as columns of the same length."""

    names: list[str]
    """Of operations."""
    op: Ints
    """Which of the names."""
    dp: Ints
    stage: Ints
    step: Ints
    number: Ints
    """Counts the operations of one name, worker and step."""
    chunk: Ints
    """Which part of the model, over all stages; the stage where nothing else is told."""
    start_s: Floats
    duration_s: Floats
    ranks: dict[tuple[int, int], int]
    """Of the worker at a data-parallel rank and a stage."""


class _Cells(NamedTuple):
    op: str
    place: tuple[int, ...]
    start_s: float
    duration_s: float


def is_op_trace(names: Iterable[str]) -> bool:
    """Say whether a table with these columns is such a trace."""
    have = {name.strip().lower() for name in names}
    return all(any(name in have for name in NAMES[ours]) for ours in _NEEDED)


def read_op_trace(path: Path) -> OpTrace:
    """Read a trace; raise InputError with the row that cannot be."""
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path}: no rows, expected one for every operation")
    columns = _choose(path, list(first[1]))
    cells = [_read(path, row, columns) for row in (first, *rows)]
    return _gather(path, cells, has_number="number" in columns, has_rank="rank" in columns)


def _rows(path: Path) -> Any:
    data = read_bytes(path)
    if data.startswith(b"PAR1"):
        return parquet_rows(path, data)
    text = decode(path, data)
    return iter(json_rows(path, text) if path.suffix in JSON_SUFFIXES else csv_rows(path, text))


def _choose(path: Path, names: Sequence[str]) -> dict[str, str]:
    known = {name.strip().lower(): name for name in names}
    found = {}
    for ours, theirs in NAMES.items():
        name = next((known[each] for each in theirs if each in known), None)
        if name is not None:
            found[ours] = name
        elif ours in _NEEDED:
            raise InputError(
                f"{path}: has columns {name_columns(names)}, expected one called {' or '.join(theirs)}"
            )
    return found


def _read(path: Path, row: Row, columns: dict[str, str]) -> _Cells:
    line, cells = row

    def count(ours: str, default: int) -> int:
        if ours not in columns:
            return default
        name = columns[ours]
        value = whole(path, line, name, cells.get(name))
        if not -1 <= value < _MOST_PLACES and ours != "step":
            raise InputError(f"{path}, row {line}: {name} is {value}, expected 0 to {_MOST_PLACES - 1}")
        return value

    op = cells.get(columns["op"])
    if not isinstance(op, str) or not op.strip():
        raise InputError(f"{path}, row {line}: {columns['op']} is empty, expected an operation")
    stage = count("stage", 0)
    chunk = count("chunk", -1)
    start_s = number_in(path, line, columns["start"], cells.get(columns["start"]))
    duration_s = number_in(path, line, columns["duration"], cells.get(columns["duration"]))
    if not 0 <= duration_s <= _LONGEST_S:
        raise InputError(
            f"{path}, row {line}: {columns['duration']} is {duration_s:g}, expected seconds from 0"
        )
    place = (count("dp", 0), stage, count("step", 0), count("number", 0), max(chunk, -1), count("rank", -1))
    if min(place[:2]) < 0:
        raise InputError(
            f"{path}, row {line}: a worker at {place[0]}, stage {stage}, expected numbers from 0"
        )
    return _Cells(op.strip(), place, start_s, duration_s)


def _gather(path: Path, cells: Sequence[_Cells], *, has_number: bool, has_rank: bool) -> OpTrace:
    names = sorted({each.op for each in cells})
    codes = {name: code for code, name in enumerate(names)}
    op = np.array([codes[each.op] for each in cells], np.int64)
    dp, stage, step, number, chunk, rank = np.array([each.place for each in cells], np.int64).T
    start_s = np.array([each.start_s for each in cells])
    if not has_number:
        number = _count(np.stack([op, dp, stage, step]), start_s)
    key = np.stack([op, dp, stage, step, number])
    if np.unique(key, axis=1).shape[1] < len(cells):
        raise InputError(f"{path}: {_name_twice(key, names)} is there twice, expected one row for each")
    stages = int(stage.max()) + 1
    places = {(int(d), int(s)): int(r) for d, s, r in zip(dp, stage, rank, strict=True)}
    return OpTrace(
        names=names,
        op=op,
        dp=dp,
        stage=stage,
        step=step,
        number=number,
        chunk=np.where(chunk < 0, stage, chunk),
        start_s=start_s,
        duration_s=np.array([each.duration_s for each in cells]),
        ranks={
            place: rank if has_rank and rank >= 0 else place[0] * stages + place[1]
            for place, rank in sorted(places.items())
        },
    )


def _count(key: Ints, start_s: Floats) -> Ints:
    """Return the place of each row among those with its key, by their start."""
    order = np.lexsort((start_s, *key[::-1]))
    is_new = np.any(np.diff(key[:, order], axis=1, prepend=-1) != 0, axis=0)
    place = np.arange(len(order))
    counted = np.empty(len(order), np.int64)
    counted[order] = place - np.maximum.accumulate(np.where(is_new, place, 0))
    return counted


def _name_twice(key: Ints, names: Sequence[str]) -> str:
    found, counts = np.unique(key, axis=1, return_counts=True)
    op, dp, stage, step, number = found[:, int(np.argmax(counts > 1))].tolist()
    return f"{names[op]} {number} of dp {dp}, stage {stage} in step {step}"
