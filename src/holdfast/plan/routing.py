"""Where micro-batches may run: how the queues of a stage are shared, by the shares ``share`` computes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.plan.dispatch import Floor
from holdfast.plan.problem import Problem
from holdfast.plan.share import even_shares, fast_shares, loosened

FREE_ROUTING_LIMIT = 32
"""Pipelines up to which any micro-batch may go anywhere; beyond, only those of slow and dead workers move."""


def round_robin(problem: Problem, *, is_coupled: bool) -> Floor:
    """ReCycle's rule: a dead worker's micro-batches go to its live peers in turn, everything else stays."""
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
    none = (0,) * (problem.dp * problem.pp)
    return Floor(
        problem=problem,
        durations=_durations(problem, is_coupled=is_coupled),
        queues=tuple(queues),
        limits=(problem.dp * problem.microbatches,) * (problem.dp * problem.pp),
        lends=none,
        borrows=none,
        is_coupled=is_coupled,
    )


def weighted(problem: Problem, period: float) -> list[Floor]:
    """Shares by speed: one way that uses slow workers evenly, and, where it differs, one that spares them."""
    even = [even_shares(problem, stage) for stage in range(problem.pp)]
    fast = [fast_shares(problem, stage, period) for stage in range(problem.pp)]
    return [_shared(problem, period, shares) for shares in ([even] if even == fast else [even, fast])]


def _shared(problem: Problem, period: float, shares: Sequence[Sequence[int]]) -> Floor:
    is_free = problem.dp <= FREE_ROUTING_LIMIT
    many = problem.dp * problem.microbatches
    if is_free:
        shares = [loosened(problem, stage, period, mine) for stage, mine in enumerate(shares)]
    limits = [shares[stage][pipeline] for pipeline, stage in problem.workers]
    return Floor(
        problem=problem,
        durations=_durations(problem, is_coupled=False),
        queues=tuple(
            tuple(pipeline for pipeline in range(problem.dp) for _ in range(problem.microbatches))
            for _ in range(problem.pp)
        ),
        limits=tuple(limits),
        lends=tuple(many if is_free else max(0, problem.microbatches - limit) for limit in limits),
        borrows=tuple(many if is_free else max(0, limit - problem.microbatches) for limit in limits),
    )


def _durations(problem: Problem, *, is_coupled: bool) -> tuple[tuple[float, ...], ...]:
    durations: list[tuple[float, ...]] = []
    for worker in problem.workers:
        speed, costs = problem.speed(worker), problem.costs[worker.stage]
        backward = (costs.input + costs.weight, 0.0) if is_coupled else (costs.input, costs.weight)
        durations.append(tuple(cost / speed for cost in (costs.forward, *backward)) if speed > 0 else ())
    return tuple(durations)
