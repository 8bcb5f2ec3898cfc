"""Where micro-batches may run: how the queues of a stage are shared, by the shares ``share`` computes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.plan.dispatch import Floor
from holdfast.plan.problem import Problem
from holdfast.plan.share import even_shares, fast_shares, loosened


def floors_of(problem: Problem, period: float) -> list[Floor]:
    """Ways to share the work by speed within a period: slow ones used evenly, spared, or in turn."""
    stages = range(problem.pp)
    even = [even_shares(problem, stage) for stage in stages]
    fast = [fast_shares(problem, stage, period) for stage in stages]
    even, fast = ([loosened(problem, stage, period, by[stage]) for stage in stages] for by in (even, fast))
    floors = [_weighted(problem, grid) for grid in ([even] if even == fast else [even, fast])]
    return floors if _has_slow(problem) else [*floors, _in_turn(problem)]


def recycle_floors(problem: Problem, *, is_coupled: bool) -> list[Floor]:
    """ReCycle's rule: a dead worker's micro-batches go to its live peers in turn.

    Where nobody is merely slow, a share by speed is one by turns too, whatever the turns.
    """
    floors = [_in_turn(problem, is_coupled=is_coupled)]
    if not _has_slow(problem):
        even = [even_shares(problem, stage) for stage in range(problem.pp)]
        floors.append(_weighted(problem, even, is_coupled=is_coupled))
    return floors


def _has_slow(problem: Problem) -> bool:
    return any(0 < speed < 1 for row in problem.speeds for speed in row)


def _in_turn(problem: Problem, *, is_coupled: bool = False) -> Floor:
    queues = []
    for stage in range(problem.pp):
        live = problem.live(stage)
        queues.append(
            tuple(
                pipeline if problem.speeds[pipeline][stage] > 0 else live[index % len(live)]
                for pipeline in range(problem.dp)
                for index in range(problem.microbatches)
            )
        )
    workers = problem.dp * problem.pp
    return Floor(
        problem=problem,
        durations=_durations(problem, is_coupled=is_coupled),
        queues=tuple(queues),
        limits=(problem.dp * problem.microbatches,) * workers,
        is_open=False,
        is_coupled=is_coupled,
    )


def _weighted(problem: Problem, shares: Sequence[Sequence[int]], *, is_coupled: bool = False) -> Floor:
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
