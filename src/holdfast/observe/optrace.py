"""Traces of operations: a row for every forward, backward, transfer and update of every worker.

CSV, JSON lines or Parquet, with a column each for the data-parallel rank, the stage, the step, the operation,
its start and its duration; usual names are known. Times are seconds of a clock that all workers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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


def is_op_trace(names: Iterable[str]) -> bool:
    """Say whether a table with these columns is such a trace."""
    have = {name.strip().lower() for name in names}
    return all(any(name in have for name in NAMES[ours]) for ours in _NEEDED)


def read_op_trace(path: Path) -> OpTrace:
    """Read a trace; raise InputError with the row that cannot be."""
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path}: no rows, expected one for every operation")
    table = _Table(path, rows, _choose(path, list(rows[0][1])))
    names, op = table.words("op")
    dp, stage, step = table.places("dp"), table.places("stage"), table.whole("step")
    start_s = table.numbers("start")
    duration_s = table.durations("duration")
    number = table.whole("number") if "number" in table.columns else None
    if number is None or number.min() < 0:  # Not all are numbered.
        number = _count(np.stack([op, dp, stage, step]), start_s)
    _refuse_twice(path, names, np.stack([op, dp, stage, step, number]))
    chunk = table.whole("chunk") if "chunk" in table.columns else stage
    return OpTrace(
        names=names,
        op=op,
        dp=dp,
        stage=stage,
        step=step,
        number=number,
        chunk=np.where(chunk < 0, stage, chunk),
        start_s=start_s,
        duration_s=duration_s,
        ranks=_ranks(dp, stage, table.places("rank") if "rank" in table.columns else None),
    )


def _rows(path: Path) -> Iterable[Row]:
    data = read_bytes(path)
    if data.startswith(b"PAR1"):
        return parquet_rows(path, data)
    text = decode(path, data)
    return json_rows(path, text) if path.suffix in JSON_SUFFIXES else csv_rows(path, text)


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


class _Table:
    """Columns of a file, turned into numbers at once; only where that fails are rows looked at singly."""

    def __init__(self, path: Path, rows: Sequence[Row], columns: dict[str, str]) -> None:
        self._path, self._rows, self.columns = path, rows, columns

    def _cells(self, ours: str) -> list[Any]:
        name = self.columns[ours]
        return [cells.get(name) for _, cells in self._rows]

    def words(self, ours: str) -> tuple[list[str], Ints]:
        """Return the different words, and which each row has."""
        cells = self._cells(ours)
        bad = next(
            (at for at, cell in enumerate(cells) if not isinstance(cell, str) or not cell.strip()), None
        )
        if bad is not None:
            raise self._refuse(bad, ours, "empty", "an operation")
        texts = [cell.strip() for cell in cells]
        names = sorted(set(texts))
        codes = {name: code for code, name in enumerate(names)}
        return names, np.array([codes[text] for text in texts], np.int64)

    def numbers(self, ours: str) -> Floats:
        """Return finite numbers."""
        cells = self._cells(ours)
        try:
            values = np.array(cells, np.float64)
        except (TypeError, ValueError, OverflowError):
            values = np.full(1, np.nan)
        if not np.isfinite(values).all():
            values = np.array(
                [number_in(self._path, row, self.columns[ours], cell) for (row, _), cell in self._at(cells)]
            )
        return values

    def durations(self, ours: str) -> Floats:
        """Return numbers from 0 on."""
        values = self.numbers(ours)
        bad = np.flatnonzero((values < 0) | (values > _LONGEST_S))
        if len(bad):
            raise self._refuse(int(bad[0]), ours, f"{values[bad[0]]:g}", "seconds from 0")
        return values

    def whole(self, ours: str) -> Ints:
        """Return whole numbers."""
        cells = self._cells(ours)
        if all(type(cell) is int for cell in cells):
            return np.array(cells, np.int64)
        name = self.columns[ours]
        return np.array([whole(self._path, row, name, cell) for (row, _), cell in self._at(cells)], np.int64)

    def places(self, ours: str) -> Ints:
        """Return whole numbers from 0 on."""
        values = self.whole(ours)
        bad = np.flatnonzero((values < 0) | (values >= _MOST_PLACES))
        if len(bad):
            raise self._refuse(int(bad[0]), ours, str(values[bad[0]]), f"0 to {_MOST_PLACES - 1}")
        return values

    def _at(self, cells: Sequence[Any]) -> Iterable[tuple[Row, Any]]:
        return zip(self._rows, cells, strict=True)

    def _refuse(self, at: int, ours: str, said: str, expected: str) -> InputError:
        row, name = self._rows[at][0], self.columns[ours]
        return InputError(f"{self._path}, row {row}: {name} is {said}, expected {expected}")


def _ranks(dp: Ints, stage: Ints, rank: Ints | None) -> dict[tuple[int, int], int]:
    """Return the rank at each place; where none are told, places are counted."""
    stages = int(stage.max()) + 1
    numbers = dp * stages + stage if rank is None else rank
    places = np.unique(np.stack([dp, stage, numbers]), axis=1).T.tolist()
    return {(at, of): number for at, of, number in places}


def _count(key: Ints, start_s: Floats) -> Ints:
    """Return the place of each row among those with its key, by their start."""
    order = np.lexsort((start_s, *key[::-1]))
    is_new = np.any(np.diff(key[:, order], axis=1, prepend=-1) != 0, axis=0)
    place = np.arange(len(order))
    counted = np.empty(len(order), np.int64)
    counted[order] = place - np.maximum.accumulate(np.where(is_new, place, 0))
    return counted


def _refuse_twice(path: Path, names: Sequence[str], key: Ints) -> None:
    ordered = key[:, np.lexsort(key)]
    twice = np.flatnonzero(np.all(ordered[:, 1:] == ordered[:, :-1], axis=0))
    if len(twice):
        op, dp, stage, step, number = ordered[:, twice[0]].tolist()
        what = f"{names[op]} {number} of dp {dp}, stage {stage} in step {step}"
        raise InputError(f"{path}: {what} is there twice, expected one row for each")
