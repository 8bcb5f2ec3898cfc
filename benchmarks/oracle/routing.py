"""Routes for a start: a rule that says who does what, before anybody looks for the best."""

from __future__ import annotations

from holdfast.plan.problem import Problem
from oracle.naming import Routes


def home_routes(problem: Problem) -> Routes:
    """Return routes by speed: who can keep up does its own micro-batches, others pass on what is too much.

    With dead workers only, this is ReCycle's rule: their micro-batches go to the live peers in turn.
    """
    routes: dict[tuple[int, int, int], int] = {}
    for stage in range(problem.pp):
        room = _shares(problem, stage)
        moved = []
        for pipeline in range(problem.dp):
            kept = min(room.get(pipeline, 0), problem.microbatches)
            for microbatch in range(problem.microbatches):
                if _is_kept(microbatch, kept, problem.microbatches):
                    routes[pipeline, microbatch, stage] = pipeline
                    room[pipeline] -= 1
                else:
                    moved.append((pipeline, microbatch))
        for pipeline, microbatch in moved:
            taker = max(room, key=lambda other: (room[other], -other))
            routes[pipeline, microbatch, stage] = taker
            room[taker] -= 1
    return routes


def _is_kept(microbatch: int, kept: int, count: int) -> bool:
    """Spread those that stay over the step, so that neither the first nor the last ones all move."""
    return (microbatch + 1) * kept // count > microbatch * kept // count


def _shares(problem: Problem, stage: int) -> dict[int, int]:
    """Return how many micro-batches each live worker does if each next one goes where it ends first."""
    shares = dict.fromkeys(problem.live(stage), 0)
    for _ in range(problem.dp * problem.microbatches):
        soonest = min(shares, key=lambda pipeline: (shares[pipeline] + 1) / problem.speeds[pipeline][stage])
        shares[soonest] += 1
    return shares
