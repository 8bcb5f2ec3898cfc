"""The workers of a run as a grid: who is where, how fast, and who is in trouble.

A pipeline job is a table of pipelines by stages, any other one of nodes by ranks. Where there are too many to
see, neighbours form blocks that show their worst, and a block opens to its ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from holdfast.incidents.values import RunView, Worker, WorkerState
from holdfast.serve.store import RankPace
from holdfast.serve.web.views.looks import WORKER_LOOKS, Look
from holdfast.serve.web.views.words import say_count, say_step, say_times

MOST_CELLS = 512
"""Drawn one by one."""
MOST_BLOCKS = 1_500
_BANDS = (1.08, 1.2, 1.4, 1.8)
"""Own time over the median: up to the first it is as the others; each next is a darker colour."""
_WORST: tuple[WorkerState, ...] = ("hung", "dead", "slow", "left", "starting", "training", "done")


class Cell(NamedTuple):
    """One worker, or nobody at a place that is not held."""

    worker: Worker | None
    ratio: float | None
    """Own time over the median of all; None: not known."""
    own_s: float | None = None

    @property
    def note(self) -> str:
        """Everything in words."""
        return (
            "nobody holds this place" if self.worker is None else _note(self.worker, self.own_s, self.ratio)
        )

    @property
    def look(self) -> Look | None:
        """How it is marked."""
        return WORKER_LOOKS[self.worker.state] if self.worker is not None else None

    @property
    def band(self) -> int:
        """How dark it is: 0 like the others, 4 the slowest; -1 where nobody is there to be timed."""
        if self.worker is None or self.worker.state in ("dead", "left", "hung"):
            return -1
        return 0 if self.ratio is None else sum(self.ratio > band for band in _BANDS)

    @property
    def times(self) -> str:
        """How many times the usual, where that is worth saying."""
        return say_times(self.ratio) if self.ratio is not None and self.band > 0 else ""


class Row(NamedTuple):
    """A line of the table."""

    name: str
    cells: tuple[Cell, ...]


class Block(NamedTuple):
    """Neighbours that are shown as one."""

    first: int
    """Place in the order of all; what a link to it says."""
    name: str
    size: int
    worst: Cell
    troubled: int


class Grid(NamedTuple):
    """What the page shows: a table, or blocks, and one of them opened."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    blocks: tuple[Block, ...]
    counts: tuple[tuple[Look, int], ...]
    """How many workers are in each state, the worst first."""
    is_timed: bool
    is_even: bool = True
    """Whether own times can be compared."""


def make_grid(view: RunView, paces: Sequence[RankPace]) -> Grid:
    """Return how all workers are to be shown."""
    is_even = is_shared_evenly(view.workers)
    cells = make_cells(view.workers, paces if is_even else ())
    counts = tuple((WORKER_LOOKS[state], count) for state in _WORST if (count := _count(view.workers, state)))
    is_timed = any(cell.ratio is not None for cell in cells.values())
    if len(cells) > MOST_CELLS:
        return Grid((), (), make_blocks(view, cells), counts, is_timed, is_even)
    columns, rows = _by_place(view, cells) if _is_table(view) else _by_node(view, cells)
    return Grid(columns, rows, (), counts, is_timed, is_even)


def is_shared_evenly(workers: Iterable[Worker]) -> bool:
    """Say whether all have the same to do; else who does more needs more time, and is none the slower."""
    told = list(workers)
    is_pipeline = any(worker.place is not None for worker in told)
    is_short = is_pipeline and any(worker.state in ("dead", "left") for worker in told)
    return not is_short and all(worker.speed == 1.0 for worker in told)


def make_cells(workers: Iterable[Worker], paces: Iterable[RankPace]) -> dict[int, Cell]:
    """Return a cell for each rank."""
    own = {pace.rank: pace.own_s for pace in paces if pace.own_s is not None}
    usual = median(own.values()) if own else 0.0
    found = {}
    for worker in workers:
        own_s = own.get(worker.rank)
        told = worker.slowdown or (1.0 / worker.speed if 0 < worker.speed < 1 else None)
        ratio = own_s / usual if own_s is not None and usual > 0 else told
        found[worker.rank] = Cell(worker, ratio, own_s)
    return found


def make_blocks(view: RunView, cells: Mapping[int, Cell]) -> tuple[Block, ...]:
    """Return the ranks node by node, several nodes in one where there are many."""
    nodes: dict[tuple[int, str], list[Cell]] = {}
    for worker in view.workers:
        nodes.setdefault((worker.node, worker.host), []).append(cells[worker.rank])
    if len(nodes) == 1:  # A job that its launcher saw as one machine.
        all_cells = [cells[worker.rank] for worker in view.workers]
        each = -(-len(all_cells) // MOST_BLOCKS) if len(all_cells) > 8 * MOST_BLOCKS else 8
        groups = [all_cells[start : start + each] for start in range(0, len(all_cells), each)]
        return tuple(_block(group, _name_ranks(group)) for group in groups)
    listed = sorted(nodes.items())
    each = -(-len(listed) // MOST_BLOCKS)
    blocks = []
    for start in range(0, len(listed), each):
        some = listed[start : start + each]
        names = [host or f"node {node}" for (node, host), _ in some]
        name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        blocks.append(_block([cell for _, group in some for cell in group], name))
    return tuple(blocks)


def open_block(view: RunView, paces: Sequence[RankPace], first: int) -> tuple[Block, tuple[Cell, ...]] | None:
    """Return a block and its ranks; None where there is no such block."""
    cells = make_cells(view.workers, paces)
    block = next((each for each in make_blocks(view, cells) if each.first == first), None)
    if block is None or block.worst.worker is None:
        return None
    order = [cell for group in _grouped(view, cells) for cell in group]
    start = next(index for index, cell in enumerate(order) if cell.worker and cell.worker.rank == first)
    return block, tuple(order[start : start + block.size])


def _grouped(view: RunView, cells: Mapping[int, Cell]) -> list[list[Cell]]:
    nodes: dict[tuple[int, str], list[Cell]] = {}
    for worker in view.workers:
        nodes.setdefault((worker.node, worker.host), []).append(cells[worker.rank])
    return [group for _, group in sorted(nodes.items())]


def _block(cells: Sequence[Cell], name: str) -> Block:
    worst = min(cells, key=_badness)
    troubled = sum(
        cell.worker is not None and cell.worker.state in ("hung", "dead", "slow") for cell in cells
    )
    first = cells[0].worker
    return Block(first.rank if first is not None else 0, name, len(cells), worst, troubled)


def _badness(cell: Cell) -> tuple[int, float]:
    state = cell.worker.state if cell.worker is not None else "training"
    return _WORST.index(state), -(cell.ratio or 0.0)


def _name_ranks(cells: Sequence[Cell]) -> str:
    ranks = [cell.worker.rank for cell in cells if cell.worker is not None]
    return f"ranks {ranks[0]} to {ranks[-1]}"


def _count(workers: Iterable[Worker], state: WorkerState) -> int:
    return sum(worker.state == state for worker in workers)


def _note(worker: Worker, own_s: float | None, ratio: float | None) -> str:
    parts = [f"rank {worker.rank}"]
    if worker.host or worker.node >= 0:
        parts.append(f"on {worker.host or f'node {worker.node}'}")
    parts.append(f": {worker.state}")
    told = []
    if own_s is not None:
        told.append(f"needs {say_step(own_s)} of its own")
    if ratio is not None:
        told.append(f"{say_times(ratio)} {'the median' if own_s is not None else 'a healthy one'}")
    if worker.speed != 1.0:
        told.append(f"the plan reckons with {worker.speed:.2f} of a healthy one")
    return " ".join(parts).replace(" :", ":") + "".join(f", {each}" for each in told)


def _by_place(view: RunView, cells: Mapping[int, Cell]) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Return pipelines by stages; those without a place come last."""
    held = {
        cell.worker.place: cell for cell in cells.values() if cell.worker and cell.worker.place is not None
    }
    spare = [cell for cell in cells.values() if cell.worker is not None and cell.worker.place is None]
    # Who died keeps showing where it was, as far as ranks were dealt out in order.
    for cell in list(spare):
        if cell.worker is not None and cell.worker.rank not in held and cell.worker.rank < _places(view):
            held[cell.worker.rank] = cell
            spare.remove(cell)
    dp = -(-max(max(held, default=0) + 1, _places(view)) // view.pp)
    nobody = Cell(None, None)
    rows = [
        Row(f"pipeline {line}", tuple(held.get(line * view.pp + stage, nobody) for stage in range(view.pp)))
        for line in range(dp)
    ]
    rows += [Row("no place", tuple(spare[at : at + view.pp])) for at in range(0, len(spare), view.pp)]
    return tuple(f"stage {stage}" for stage in range(view.pp)), tuple(rows)


def _is_table(view: RunView) -> bool:
    """Whether pipelines by stages are a table that can be drawn; a log may say anything."""
    last = max((worker.place for worker in view.workers if worker.place is not None), default=0)
    return 1 < view.pp <= MOST_CELLS and max(last + 1, view.world_size) <= 4 * MOST_CELLS


def _places(view: RunView) -> int:
    return -(-view.world_size // view.pp) * view.pp


def _by_node(view: RunView, cells: Mapping[int, Cell]) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    nodes: dict[tuple[int, str], list[Cell]] = {}
    for worker in view.workers:
        nodes.setdefault((worker.node, worker.host), []).append(cells[worker.rank])
    rows = []
    for (node, host), group in sorted(nodes.items()):
        name = host or (f"node {node}" if node >= 0 else "joined by itself")
        rows += [Row(name if at == 0 else "", tuple(group[at : at + 16])) for at in range(0, len(group), 16)]
    return (), tuple(rows)


def summarize(grid: Grid) -> str:
    """Return how the workers are, in words."""
    return (
        ", ".join(f"{say_count(count, 'worker')} {look.word}" for look, count in grid.counts)
        or "no workers yet"
    )
