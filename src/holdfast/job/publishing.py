"""What a worker of a pipeline lets its guard and its watch see."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.job.attach import RINGS_ENV, observer
from holdfast.job.engine import Engine
from holdfast.job.points import Listener, Points
from holdfast.job.status import StatusWriter, page_path, publish_schedule
from holdfast.membership import Regroup
from holdfast.plan.ops import KIND_PARTS, Op


def make_points(listeners: Sequence[Listener], *, rank: int, pp: int, dp: int) -> Points:
    """Return the points of a worker's way, with a page for the guard where there is one."""
    rings = os.environ.get(RINGS_ENV)
    page = StatusWriter(page_path(Path(rings), rank), rank=rank, pp=pp, dp=dp) if rings is not None else None
    watching = observer()
    return Points(listeners, page, watching.tally if watching is not None else None)


def count_operations(ops: Iterable[Op]) -> int:
    """Return what a worker has to do in a step; a backward in one piece is as much as one in two."""
    return sum(len(KIND_PARTS[op.kind]) for op in ops)


def publish(engine: Engine, regroup: Regroup) -> None:
    """Tell the guard and the watch what is to be done in a generation."""
    if rings := os.environ.get(RINGS_ENV):
        publish_schedule(Path(rings), regroup.generation, regroup.schedule)
    if (watching := observer()) is not None:
        pp = engine.needs.pp
        first = engine.place // pp * pp
        ranks = dict(zip(regroup.members, regroup.holders or regroup.members, strict=True))
        watching.follow_plan(
            regroup.generation,
            step=regroup.agreement.version,
            operations=count_operations(instruction.op for instruction in engine.order),
            pipeline=[ranks.get(place, -1 - place) for place in range(first, first + pp)],
        )
