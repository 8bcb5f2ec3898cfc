"""Who takes which role: survivors move to where they are missed most, slow workers to where they hurt least.

This is ReCycle's failure normalization, for speeds between 0 and 1 as well. A worker that takes a role at
another stage needs that stage's parameters and optimizer state, which it copies from a live peer there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from holdfast.plan.problem import Problem, Worker
from holdfast.plan.share import smallest_worst


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that takes another role."""

    worker: Worker
    """Who it was so far."""
    to: Worker
    """Which role it takes; its own is empty from now on, unless another move fills it."""
    size_bytes: int | None
    """What it has to copy; None when the size of the state was not given."""


class _Swap(NamedTuple):
    """Two roles whose holders change places; one of them may be dead."""

    first: Worker
    second: Worker


def normalize(problem: Problem) -> tuple[Problem, tuple[Move, ...]]:
    """Return the problem with the speeds of the new roles, and the fewest moves that lead there.

    Greedy: as long as some exchange between two stages lightens the heavier of the two, the one that helps
    the heaviest stage most is made. Where the stages cost the same this spreads failures evenly, as ReCycle
    does; of equal exchanges the one that leaves the failure at the later stage is made, which has more free
    memory.
    """
    holders = {worker: worker for worker in problem.workers}
    speeds = [list(row) for row in problem.speeds]
    loads = [_load(problem, speeds, stage) for stage in range(problem.pp)]
    best, heaviest = (problem.speeds, dict(holders)), max(loads)
    while (swap := _best_swap(problem, speeds, loads)) is not None:
        one, other = swap
        holders[one], holders[other] = holders[other], holders[one]
        _exchange(speeds, swap)
        for stage in (one.stage, other.stage):
            loads[stage] = _load(problem, speeds, stage)
        if max(loads) < heaviest:  # Of equally heavy stages, the last to be lightened counts.
            best, heaviest = (tuple(map(tuple, speeds)), dict(holders)), max(loads)
    return msgspec.structs.replace(problem, speeds=best[0]), _moves(problem, best[1])


def _moves(problem: Problem, holders: dict[Worker, Worker]) -> tuple[Move, ...]:
    return tuple(
        Move(
            worker=holder,
            to=role,
            size_bytes=problem.state_bytes[role.stage] if problem.state_bytes else None,
        )
        for role, holder in holders.items()
        if holder != role and problem.speed(holder) > 0
    )


def _best_swap(problem: Problem, speeds: list[list[float]], loads: Sequence[float]) -> _Swap | None:
    """Return the exchange that brings the heaviest stage down most, or None if none does."""
    heaviest = max(range(problem.pp), key=lambda stage: loads[stage])
    best: tuple[float, int] = (loads[heaviest] * (1 - 1e-9), 0)
    found = None
    for swap in _swaps(problem, speeds, heaviest):
        _exchange(speeds, swap)
        worst = max(_load(problem, speeds, swap.first.stage), _load(problem, speeds, swap.second.stage))
        _exchange(speeds, swap)
        if (worst, -swap.second.stage) < best:
            best, found = (worst, -swap.second.stage), swap
    return found


def _swaps(problem: Problem, speeds: list[list[float]], heaviest: int) -> Iterator[_Swap]:
    """Exchanges of a worker of the heaviest stage for a faster one of another; one per pair of speeds."""
    for stage in range(problem.pp):
        seen: set[tuple[float, float]] = set()
        for first in (Worker(pipeline, heaviest) for pipeline in range(problem.dp)):
            for second in (Worker(pipeline, stage) for pipeline in range(problem.dp)):
                pair = (speeds[first.pipeline][heaviest], speeds[second.pipeline][stage])
                if stage != heaviest and pair[0] < pair[1] and pair not in seen:
                    seen.add(pair)
                    yield _Swap(first, second)


def _exchange(speeds: list[list[float]], swap: _Swap) -> None:
    (pipeline, stage), (other, at) = swap
    speeds[pipeline][stage], speeds[other][at] = speeds[other][at], speeds[pipeline][stage]


def _load(problem: Problem, speeds: Sequence[Sequence[float]], stage: int) -> float:
    """How long the busiest worker of a stage works; for ever, if nobody there is alive."""
    live = [row[stage] for row in speeds if row[stage] > 0]
    cost = problem.costs[stage].total
    total = problem.dp * problem.microbatches
    return smallest_worst(total, live, lambda count, speed: count * cost / speed) if live else float("inf")
