"""The grid of workers: places, speeds, and blocks where there are too many to see."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from holdfast.incidents.values import RunView, Worker, WorkerState
from holdfast.serve.store import RankPace
from holdfast.serve.web.views.workers import MOST_BLOCKS, make_cells, make_grid, open_block


def _worker(rank: int, *, state: WorkerState = "training", place: int | None = None, each: int = 8) -> Worker:
    return Worker(rank=rank, node=rank // each, host=f"n{rank // each}", state=state, place=place)


def _pace(rank: int, own_s: float | None) -> RankPace:
    at = datetime(2026, 11, 17, tzinfo=UTC).isoformat()
    return RankPace(rank=rank, node=0, step=9, step_s=0.5, own_s=own_s, at=at)


def test_speed_is_own_time_over_the_median_of_all() -> None:
    """One that needs twice as long is the darkest; one of whom nothing is known is like the others."""
    workers = [_worker(rank) for rank in range(5)]
    times = {0: 0.2, 1: 0.2, 2: 0.2, 3: 0.4}
    cells = make_cells(workers, [_pace(rank, own_s) for rank, own_s in times.items()])
    assert [cells[rank].band for rank in range(5)] == [0, 0, 0, 4, 0]
    assert cells[3].times == "2.00x"
    assert cells[3].note == "rank 3 on n0: training, needs 400 ms of its own, 2.00x the median"


def test_pipelines_are_rows_and_who_died_is_shown_where_it_was() -> None:
    """A worker without a place fills the one of its rank, unless somebody holds that now."""
    workers = tuple(
        _worker(rank, state="dead" if rank == 3 else "training", place=None if rank == 3 else rank)
        for rank in range(8)
    )
    grid = make_grid(RunView(pp=4, world_size=8, workers=workers), [])
    assert grid.columns == ("stage 0", "stage 1", "stage 2", "stage 3")
    assert [row.name for row in grid.rows] == ["pipeline 0", "pipeline 1"]
    dead = grid.rows[0].cells[3]
    assert (dead.band, dead.look and dead.look.word) == (-1, "dead")
    assert [(look.word, count) for look, count in grid.counts] == [("dead", 1), ("training", 7)]


def test_a_plain_job_is_nodes_by_ranks() -> None:
    """Each node is a row with its name."""
    grid = make_grid(RunView(world_size=16, workers=tuple(map(_worker, range(16)))), [])
    assert [(row.name, len(row.cells)) for row in grid.rows] == [("n0", 8), ("n1", 8)]


def test_many_workers_are_blocks_with_the_worst_of_them() -> None:
    """Never more blocks than can be seen; a block opens to exactly its ranks."""
    count = 40_000
    states: dict[int, WorkerState] = {12_345: "dead", 12_346: "slow"}
    workers = tuple(_worker(rank, state=states.get(rank, "training")) for rank in range(count))
    view = RunView(world_size=count, workers=workers)
    grid = make_grid(view, [])
    assert 0 < len(grid.blocks) <= MOST_BLOCKS
    assert sum(block.size for block in grid.blocks) == count
    [bad] = [block for block in grid.blocks if block.troubled]
    assert bad.worst.worker is not None
    assert (bad.worst.worker.rank, bad.troubled) == (12_345, 2)
    opened = open_block(view, [], bad.first)
    assert opened is not None
    ranks = [cell.worker.rank for cell in opened[1] if cell.worker is not None]
    assert ranks == list(range(bad.first, bad.first + bad.size))
    assert open_block(view, [], 7) is None


def test_who_does_more_because_another_is_slow_is_not_shown_as_slow() -> None:
    """Where work is shared unevenly own times cannot be compared; who was named keeps its colour."""
    slow = msgspec.structs.replace(_worker(1, place=1), speed=0.5)
    view = RunView(pp=2, workers=(_worker(0, place=0), slow))
    grid = make_grid(view, [_pace(0, 0.3), _pace(1, 0.1)])
    assert not grid.is_even
    [first, second] = grid.rows[0].cells
    assert (first.band, second.ratio) == (0, 2.0)
