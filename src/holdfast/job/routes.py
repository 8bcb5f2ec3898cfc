"""What one worker does in a step, with whom it speaks about it: a schedule seen from one place.

Peer and tag of every message come from the schedule alone, so both ends derive the same.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Worker

NOBODY = -1


class Instruction(NamedTuple):
    """One operation, where its input comes from and where its output goes; ranks are those of the job."""

    op: Op
    source: int = NOBODY
    target: int = NOBODY
    tag_in: int = 0
    tag_out: int = 0


def instructions(schedule: Schedule, rank: int) -> list[Instruction]:
    """Return the part of a schedule that a rank carries out, in order."""
    owners = owners_of(schedule)
    return [_instruct(op, schedule, owners) for op in schedule.order(Worker(*divmod(rank, schedule.pp)))]


def owners_of(schedule: Schedule) -> dict[tuple[int, int, int], int]:
    """Return the rank that works on each (stage, pipeline, micro-batch)."""
    return {
        (op.stage, op.pipeline, op.microbatch): rank
        for rank, order in enumerate(schedule.orders)
        for op in order
        if op.kind == "F"
    }


def forward_only(live: list[int], *, dp: int, pp: int, microbatches: int) -> Schedule:
    """Return a schedule of forwards alone; the micro-batches of a dead worker are dealt out in turn.

    Everybody keeps to the same order, micro-batch by micro-batch, so nobody waits for somebody who waits.
    """
    at_stage = [[rank for rank in live if rank % pp == stage] for stage in range(pp)]
    orders: list[list[Op]] = [[] for _ in range(dp * pp)]
    for microbatch in range(microbatches):
        for pipeline in range(dp):
            for stage, ranks in enumerate(at_stage):
                home = pipeline * pp + stage
                rank = home if home in ranks else ranks[(microbatch + pipeline) % len(ranks)]
                orders[rank].append(Op("F", pipeline, microbatch, stage))
    return Schedule(dp=dp, pp=pp, microbatches=microbatches, orders=tuple(map(tuple, orders)))


def _instruct(op: Op, schedule: Schedule, owners: dict[tuple[int, int, int], int]) -> Instruction:
    before = owners.get((op.stage - 1, op.pipeline, op.microbatch), NOBODY)
    after = owners.get((op.stage + 1, op.pipeline, op.microbatch), NOBODY)
    forth = 2 * (op.pipeline * schedule.microbatches + op.microbatch)
    back = forth + 1
    if op.kind == "F":
        return Instruction(op, before, after, forth, forth)
    if op.kind in "IB":
        return Instruction(op, after, before, back, back)
    return Instruction(op)
