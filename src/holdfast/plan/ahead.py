"""What may happen to a job next: the problems whose plans are worth having before they are needed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.plan.problem import Problem, Worker

DEAD, HEALTHY = 0.0, 1.0


def likely(problem: Problem) -> Iterator[Problem]:
    """Yield what a problem may become by one event: first that somebody returns, then that somebody dies.

    Who comes back is known, and comes soon. Of those who may die the slow ones come first. The death of a
    stage's last worker leaves nothing to plan.
    """
    for worker in problem.workers:
        if problem.speed(worker) == DEAD:
            yield with_speed(problem, worker, HEALTHY)
    living = [worker for worker in problem.workers if problem.speed(worker) > DEAD]
    for worker in sorted(living, key=problem.speed):
        if len(problem.live(worker.stage)) > 1:
            yield with_speed(problem, worker, DEAD)


def with_speed(problem: Problem, worker: Worker, speed: float) -> Problem:
    """Return the problem with one worker's speed changed."""
    speeds = [list(row) for row in problem.speeds]
    speeds[worker.pipeline][worker.stage] = speed
    return msgspec.structs.replace(problem, speeds=tuple(map(tuple, speeds)))
