"""A schedule with its times as a person would sketch it: one row per worker, time to the right.

``F3`` is the forward of micro-batch 3; ``F3¹`` that of a micro-batch re-routed from pipeline 1; dashes show
how long an operation takes, dots are idle time. Rows are made of cells, so that who prints them can colour
them. The times are believed as they are: a schedule that is wrong can be looked at too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from holdfast.plan.ops import KINDS, Op
from holdfast.plan.problem import Problem, Worker
from holdfast.plan.timing import Timed

WIDTH = 100
MAX_ROWS = 48
MEANINGS = {
    "F": "forward",
    "I": "backward of input",
    "W": "backward of weights",
    "B": "backward",
}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Place(msgspec.Struct, frozen=True):
    """One operation of a schedule: the ``position``-th of a worker."""

    worker: Worker
    position: int


class Cell(msgspec.Struct, frozen=True):
    """A piece of a row; ``kind`` is the operation's letter, or empty where the worker is idle."""

    text: str
    kind: str = ""
    is_rerouted: bool = False


class Row(msgspec.Struct, frozen=True):
    """What one worker does, from left to right."""

    worker: Worker
    label: str
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        return (self.label + "".join(cell.text for cell in self.cells)).rstrip()


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A drawn schedule: the axis, the rows, and what has to be said below them."""

    axis: str
    rows: tuple[Row, ...]
    legend: str
    notes: tuple[str, ...]

    def starts_group(self, index: int) -> bool:
        """Say whether a row is the first of its pipeline below another one."""
        return index > 0 and self.rows[index - 1].worker.pipeline != self.rows[index].worker.pipeline

    def __str__(self) -> str:
        return _join(self)


def draw(problem: Problem, timed: Timed, *, width: int = WIDTH) -> str:
    """Return a schedule as text."""
    return str(make_grid(problem, timed, width=width))


def make_grid(problem: Problem, timed: Timed, *, width: int = WIDTH, max_rows: int = MAX_ROWS) -> Grid:
    """Return the rows of all workers, or of as many as are pleasant to read."""
    workers = choose_workers(problem, max_rows)
    return _make_grid(problem, timed, workers, _fit(problem, timed, workers, width))


def mark(problem: Problem, timed: Timed, place: Place, *, width: int = WIDTH) -> str:
    """Return the schedule around one operation, with carets below it."""
    others = [worker for worker in choose_workers(problem, MAX_ROWS // 2) if worker != place.worker]
    workers = sorted([*others, place.worker])
    index = place.worker.pipeline * problem.pp + place.worker.stage
    start, end = timed.starts[index][place.position], timed.ends[index][place.position]
    frame = _fit(problem, timed, workers, width)
    if end > frame.until:
        frame = msgspec.structs.replace(frame, begin=start - frame.columns // 2 / frame.scale)
    grid = _make_grid(problem, timed, workers, frame)
    left, right = frame.column(start), frame.column(end)
    carets = " " * (len(grid.rows[0].label) + left) + "^" * max(right - left, 1)
    return _join(grid, below={place.worker: carets})


def show(time: float) -> str:
    """Return a time with as many digits as say something."""
    return f"{time:.6g}" if abs(time) < 1e6 else f"{time:,.0f}"


def choose_workers(problem: Problem, limit: int) -> list[Worker]:
    """Return all workers, or whole pipelines up to a limit: those with slow or dead workers come first."""
    many = max(1, limit // problem.pp)
    hit = [p for p in range(problem.dp) if min(problem.speeds[p]) < 1]
    well = [p for p in range(problem.dp) if min(problem.speeds[p]) >= 1]
    # One healthy pipeline at least is shown, if there is one: it is what the others are compared with.
    kept = sorted([*hit[: many - bool(well and many > 1)], *well][:many])
    return [Worker(pipeline, stage) for pipeline in kept for stage in range(problem.pp)]


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Maps times to columns."""

    first: float
    last: float
    begin: float
    """The time at the left edge."""
    columns: int
    pitch: int
    """How many columns a typical operation gets."""
    scale: float
    """Columns per unit of time."""
    digits: int
    """How many the largest number of a micro-batch has."""
    home: int
    """How many columns the number of a home pipeline takes; 0 if nothing is re-routed."""

    @property
    def until(self) -> float:
        """The time at the right edge."""
        return min(self.last, self.begin + self.columns / self.scale)

    @property
    def shows_homes(self) -> bool:
        return self.pitch >= 1 + self.digits + self.home

    def column(self, at: float) -> int:
        # Halves go up: the even rounding of Python would make one operation of two vanish.
        return max(0, min(self.columns, math.floor((at - self.begin) * self.scale + 0.5)))

    def axis(self) -> str:
        wide = max(5, self.pitch, len(show(self.last)) + 1)
        step = _round_up(wide / self.scale)
        text = ""
        number = math.ceil(self.begin / step)
        while number * step <= self.until and self.column(number * step) < self.columns:
            text = text.ljust(self.column(number * step)) + f"{show(number * step)} "
            number += 1
        return text

    def idle(self, left: int, right: int) -> Cell:
        return Cell("".join("." if column % self.pitch == 0 else " " for column in range(left, right)))

    def cell(self, op: Op, width: int, *, is_rerouted: bool) -> Cell:
        """Return what fits of an operation's name, filled up to its width."""
        letter = op.kind.lower() if is_rerouted and not self.shows_homes else op.kind
        number = str(op.microbatch) if width > self.digits else ""
        home = str(op.pipeline).translate(_RAISED) if is_rerouted and width > self.digits + self.home else ""
        gap = " " if self.pitch > 1 + self.digits and len(letter + number + home) < width else ""
        text = (letter + number + home).ljust(width - len(gap), "-") + gap
        return Cell(text, op.kind, is_rerouted)


def _fit(problem: Problem, timed: Timed, workers: Sequence[Worker], width: int) -> _Frame:
    """Choose the scale: room for the names of operations, else for their numbers, else for one letter."""
    rows = [row for worker in workers for row in _row(problem, timed, worker)]
    durations = sorted(end - start for _, start, end, _ in rows if end > start) or [1.0]
    # Operations much shorter than most would stretch the whole; they are left out and counted.
    typical = max(durations[0], statistics.median(durations) / 3)
    first = min((min(starts) for starts in timed.starts if starts), default=0.0)
    last = max((max(ends) for ends in timed.ends if ends), default=1.0)
    columns = max(20, width - len(_labels(problem, workers)[0]))
    digits = len(str(problem.microbatches - 1))
    home = len(str(problem.dp - 1)) if any(is_rerouted for _, _, _, is_rerouted in rows) else 0
    most = columns * typical / max(last - first, typical)
    # A blank between two operations is worth a column, unless the number of a home pipeline fills it.
    pitch = next(pitch for pitch in (1 + digits + max(home, 1), 1 + digits, 1) if pitch <= max(most, 1))
    return _Frame(
        first=first,
        last=last,
        begin=first,
        columns=columns,
        pitch=pitch,
        scale=pitch / typical,
        digits=digits,
        home=home,
    )


def _make_grid(problem: Problem, timed: Timed, workers: Sequence[Worker], frame: _Frame) -> Grid:
    labels = _labels(problem, workers)
    rows = tuple(
        Row(worker, label, _cells(problem, timed, worker, frame))
        for worker, label in zip(workers, labels, strict=True)
    )
    axis = " " * len(labels[0]) + frame.axis()
    return Grid(
        axis=axis, rows=rows, legend=_legend(rows, frame), notes=_notes(problem, timed, workers, frame)
    )


def _join(grid: Grid, below: Mapping[Worker, str] = MappingProxyType({})) -> str:
    lines = [grid.axis.rstrip()]
    for index, row in enumerate(grid.rows):
        lines += [""] * grid.starts_group(index)
        lines += [str(row), *([below[row.worker]] if row.worker in below else [])]
    return "\n".join([*lines, "", grid.legend, *grid.notes]) + "\n"


def _row(problem: Problem, timed: Timed, worker: Worker) -> list[tuple[Op, float, float, bool]]:
    """Return what a worker does, when, and whether it does it for another pipeline."""
    index = worker.pipeline * problem.pp + worker.stage
    order, starts, ends = timed.schedule.orders[index], timed.starts[index], timed.ends[index]
    return [
        (op, start, end, op.pipeline != worker.pipeline)
        for op, start, end in zip(order, starts, ends, strict=True)
    ]


def _cells(problem: Problem, timed: Timed, worker: Worker, frame: _Frame) -> tuple[Cell, ...]:
    row = _row(problem, timed, worker)
    if not row and problem.speed(worker) == 0:
        return (Cell("dead"),)
    cells: list[Cell] = []
    at = 0
    for op, start, end, is_rerouted in row:
        left, right = max(at, frame.column(start)), frame.column(end)
        if left < right:
            cells += [frame.idle(at, left)] * (left > at)
            cells.append(frame.cell(op, right - left, is_rerouted=is_rerouted))
            at = right
    return (*cells, frame.idle(at, frame.column(frame.until)))


def _labels(problem: Problem, workers: Sequence[Worker]) -> list[str]:
    """Return what stands before each row, all of one width: who it is, and how fast if not healthy."""
    speeds = [problem.speed(worker) for worker in workers]
    notes = ["" if speed in (0, 1) else f" x{speed:.3g}" for speed in speeds]
    names = [f"{worker}{note}" for worker, note in zip(workers, notes, strict=True)]
    return [name.ljust(max(map(len, names)) + 2) for name in names]


def _legend(rows: Sequence[Row], frame: _Frame) -> str:
    cells = [cell for row in rows for cell in row.cells]
    kinds = [kind for kind in KINDS if any(cell.kind == kind for cell in cells)]
    words = [f"{kind} {MEANINGS[kind]}" for kind in kinds]
    if frame.home:
        words.append("F3¹ re-routed from pipeline 1" if frame.shows_homes else "lower case re-routed")
    return ", ".join(words)


def _notes(problem: Problem, timed: Timed, workers: Sequence[Worker], frame: _Frame) -> tuple[str, ...]:
    notes = []
    others = problem.dp * problem.pp - len(workers)
    if others:
        notes.append(f"{others:,} more workers are not shown.")
    if frame.begin > frame.first or frame.until < frame.last:
        notes.append(
            f"From {show(frame.begin)} to {show(frame.until)} of {show(frame.last)}; the rest does not fit."
        )
    brief = sum(
        frame.column(start) == frame.column(end)
        for worker in workers
        for _, start, end, _ in _row(problem, timed, worker)
        if start >= frame.begin and end <= frame.until
    )
    if brief:
        notes.append(f"{brief:,} operations are too short to show.")
    return tuple(notes)


def _round_up(value: float) -> float:
    """Return the next of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, …"""
    scale = 1.0
    while scale > value:
        scale /= 10
    while scale * 10 < value:
        scale *= 10
    return next(digit * scale for digit in (1, 2, 5, 10) if digit * scale >= value)
