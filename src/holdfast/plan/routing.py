"""Where micro-batches may run: how the queues of a stage are shared, by the shares ``share`` computes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from holdfast.plan.dispatch import Floor
from holdfast.plan.problem import Problem
from holdfast.plan.share import even_shares, fast_shares, loosened


def floors_of(problem: Problem, period: float) -> list[Floor]:
    """Ways to share the work by speed within a period; those that move less first, the most able one last."""
    stages = range(problem.pp)
    even = [even_shares(problem, stage) for stage in stages]
    fast = [fast_shares(problem, stage, period) for stage in stages]
    floors = [_closed(problem, [_assigned(problem, stage, even[stage]) for stage in stages])]
    even, fast = ([loosened(problem, stage, period, by[stage]) for stage in stages] for by in (even, fast))
    return floors + [_open(problem, shares) for shares in ([even] if even == fast else [fast, even])]


def recycle_floors(problem: Problem, *, is_coupled: bool) -> list[Floor]:
    """ReCycle's rule: a dead worker's micro-batches go to its live peers in turn.

    Where nobody is merely slow, a share by speed is one by turns too, whatever the turns.
    """
    turns = [_in_turn(problem, stage) for stage in range(problem.pp)]
    floors = [_closed(problem, turns, is_coupled=is_coupled)]
    if not any(0 < speed < 1 for row in problem.speeds for speed in row):
        even = [even_shares(problem, stage) for stage in range(problem.pp)]
        floors.append(_open(problem, even, is_coupled=is_coupled))
    return floors


def _in_turn(problem: Problem, stage: int) -> tuple[int, ...]:
    """Whose queue each micro-batch of a stage is in when a dead worker's go to its live peers in turn."""
    live = problem.live(stage)
    return tuple(
        pipeline if problem.speeds[pipeline][stage] > 0 else live[index % len(live)]
        for pipeline in range(problem.dp)
        for index in range(problem.microbatches)
    )


def _assigned(problem: Problem, stage: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Whose queue each is in when only what exceeds a worker's share moves, spread over time and peers."""
    own = problem.microbatches
    queue = [pipeline for pipeline in range(problem.dp) for _ in range(own)]
    surplus = sorted(
        ((2 * n + 1) * own // (2 * (own - share)), pipeline)
        for pipeline, share in enumerate(shares)
        for n in range(own - share)
    )
    takers = [(0.5 / (share - own), 0, pipeline) for pipeline, share in enumerate(shares) if share > own]
    heapq.heapify(takers)
    for index, pipeline in surplus:
        _, taken, taker = takers[0]
        queue[pipeline * own + index] = taker
        heapq.heapreplace(takers, ((taken + 1.5) / (shares[taker] - own), taken + 1, taker))
    return tuple(queue)


def _closed(problem: Problem, queues: Sequence[tuple[int, ...]], *, is_coupled: bool = False) -> Floor:
    return Floor(
        problem=problem,
        durations=_durations(problem, is_coupled=is_coupled),
        queues=tuple(queues),
        limits=(problem.dp * problem.microbatches,) * (problem.dp * problem.pp),
        is_open=False,
        is_coupled=is_coupled,
    )


def _open(problem: Problem, shares: Sequence[Sequence[int]], *, is_coupled: bool = False) -> Floor:
    """Any worker may take any micro-batch of its stage, up to its share, and its own come first.

    So a pipeline that falls behind is helped, whether its own worker is dead, slow, or only late.
    """
    queue = tuple(pipeline for pipeline in range(problem.dp) for _ in range(problem.microbatches))
    return Floor(
        problem=problem,
        durations=_durations(problem, is_coupled=is_coupled),
        queues=(queue,) * problem.pp,
        limits=tuple(shares[stage][pipeline] for pipeline, stage in problem.workers),
        is_open=True,
        is_coupled=is_coupled,
    )


def _durations(problem: Problem, *, is_coupled: bool) -> tuple[tuple[float, ...], ...]:
    durations: list[tuple[float, ...]] = []
    for worker in problem.workers:
        speed, costs = problem.speed(worker), problem.costs[worker.stage]
        backward = (costs.input + costs.weight, 0.0) if is_coupled else (costs.input, costs.weight)
        durations.append(tuple(cost / speed for cost in (costs.forward, *backward)) if speed > 0 else ())
    return tuple(durations)
