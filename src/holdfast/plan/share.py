"""Who takes how many micro-batches: the integral split that makes the slowest part finish first.

Routing inside a stage, lower bounds and the rebalancing of whole replicas (FALCON's S2) all call this. FALCON
minimises the variance of the parts' times instead, which for integers is not the same: up to 1.196 times
worse.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from holdfast.errors import InputError
from holdfast.plan.problem import Problem

Part = TypeVar("Part", bound=Hashable)
_SLACK = 1e-9
"""Two times that differ by less, relatively, are the same: sums of floats."""


def split(total: int, speeds: Sequence[float], *, overhead: float = 0.0, at_least: int = 0) -> list[int]:
    """Return how many of ``total`` each part takes: the largest (count + overhead) / speed is smallest.

    Parts of speed 0 take none, the others ``at_least`` so many. Overhead is what a part pays besides its own
    work, in units of work: pp - 1 for a pipeline that fills and drains. Starting from a floor that every
    optimum contains, the next one always goes to the part that would then be done first: this is optimal.
    """
    live = [part for part, speed in enumerate(speeds) if speed > 0]
    if not live or total < at_least * len(live):
        raise InputError(f"{total} micro-batches cannot be shared by {len(live)} live workers")
    level = (total + overhead * len(live)) / sum(speeds[part] for part in live)
    counts = [0] * len(speeds)
    for part in live:
        counts[part] = max(at_least, math.floor(level * speeds[part] * (1 - _SLACK) - overhead))
    while (surplus := sum(counts) - total) > 0:  # `at_least` or a large overhead lifted some above the level.
        worst = max(
            live, key=lambda part: (counts[part] > at_least, (counts[part] + overhead) / speeds[part])
        )
        counts[worst] -= min(surplus, 1)
    queue = [((counts[part] + 1 + overhead) / speeds[part], part) for part in live]
    heapq.heapify(queue)
    for _ in range(total - sum(counts)):
        _, part = queue[0]
        counts[part] += 1
        heapq.heapreplace(queue, ((counts[part] + 1 + overhead) / speeds[part], part))
    return counts


def smallest_worst(total: int, parts: Iterable[Part], time: Callable[[int, Part], float]) -> float:
    """Return the smallest worst time over all splits of ``total``; ``time(count, part)`` grows with count."""
    kinds = Counter(parts)

    def held(limit: float) -> int:
        return sum(number * _most(total, kind, time, limit) for kind, number in kinds.items())

    # A best worst time is the time of some count on some part: look for the first one that holds `total`.
    return min(
        time(bisect.bisect_left(range(total), True, key=lambda count: held(time(count, kind)) >= total), kind)
        for kind in kinds
    )


def _most(total: int, part: Part, time: Callable[[int, Part], float], limit: float) -> int:
    return bisect.bisect_right(range(1, total + 1), limit * (1 + _SLACK), key=lambda count: time(count, part))


def even_shares(problem: Problem, stage: int) -> list[int]:
    """Per pipeline, the micro-batches its worker takes when all workers of a stage finish together."""
    return split(problem.dp * problem.microbatches, [row[stage] for row in problem.speeds])


def fast_shares(problem: Problem, stage: int, period: float) -> list[int]:
    """Per pipeline, a share that uses slow workers only for what the fast ones cannot do within the period.

    A micro-batch that passes through a slow worker holds memory upstream for as long as it takes; where
    memory is tight this costs more than the slow worker's help is worth.
    """
    total = problem.dp * problem.microbatches
    speeds = [row[stage] for row in problem.speeds]
    room = _room(problem, stage, period)
    counts = [0] * problem.dp
    for speed in sorted({speed for speed in speeds if speed > 0}, reverse=True):
        class_ = [pipeline for pipeline in range(problem.dp) if speeds[pipeline] == speed]
        taken = min(total - sum(counts), sum(room[pipeline] for pipeline in class_))
        for pipeline, count in zip(class_, split(taken, [1.0] * len(class_)), strict=True):
            counts[pipeline] = count
    return counts


def loosened(problem: Problem, stage: int, period: float, shares: Sequence[int]) -> list[int]:
    """Raise the shares of the fastest workers to what they can do within the period.

    Shares are then limits: which worker does the last few is left to the order in which they come.
    """
    fastest = max(row[stage] for row in problem.speeds)
    room = _room(problem, stage, period)
    return [
        max(share, room[pipeline]) if problem.speeds[pipeline][stage] == fastest else share
        for pipeline, share in enumerate(shares)
    ]


def _room(problem: Problem, stage: int, period: float) -> list[int]:
    """How many micro-batches each worker can do within a period, or within the even split's time."""
    cost = problem.costs[stage].total
    even = even_shares(problem, stage)
    speeds = [row[stage] for row in problem.speeds]
    longest = max(count * cost / speed for count, speed in zip(even, speeds, strict=True) if speed > 0)
    return [math.floor(max(period, longest) * (1 + _SLACK) * speed / cost) for speed in speeds]
