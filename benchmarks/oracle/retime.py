"""The best times for a given order of work, by arithmetic and not by search.

Starting early is best for the makespan. For the period, a stage that starts early may only wait longer, so
each stage gets a release. With ``ways[s][t]`` the longest chain of work from the first start of stage s to
the last end of stage t, the least period is the largest mean of a cycle of ways (Karp, 1978).
"""

from __future__ import annotations

import math

from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Problem
from holdfast.plan.timing import Timed, time_schedule


def best_times(problem: Problem, schedule: Schedule, *, is_period: bool) -> Timed:
    """Return the schedule with the times of least period, or of least makespan."""
    if not is_period:
        return time_schedule(problem, schedule)
    ways = [_ways_from(problem, schedule, stage) for stage in range(problem.pp)]
    return time_schedule(problem, schedule, _releases(ways, _largest_mean(ways)))


def _ways_from(problem: Problem, schedule: Schedule, stage: int) -> list[float]:
    releases = [0.0 if other == stage else -math.inf for other in range(problem.pp)]
    timed = time_schedule(problem, schedule, releases)
    return [
        max(ends[-1] for ends in timed.ends[other :: problem.pp] if ends)  # Every stage has work.
        for other in range(problem.pp)
    ]


def _largest_mean(ways: list[list[float]]) -> float:
    size = len(ways)
    walks = [[0.0] * size]
    for _ in range(size):
        walks.append(
            [max(walks[-1][before] + ways[before][after] for before in range(size)) for after in range(size)]
        )
    return max(
        min((walks[size][end] - walks[steps][end]) / (size - steps) for steps in range(size))
        for end in range(size)
    )


def _releases(ways: list[list[float]], period: float) -> list[float]:
    releases = [0.0] * len(ways)
    for _ in ways:  # The longest walk without a cycle has fewer edges than there are stages.
        for stage in range(len(ways)):
            ends = max(release + way[stage] for release, way in zip(releases, ways, strict=True))
            releases[stage] = max(releases[stage], ends - period)
    return releases
