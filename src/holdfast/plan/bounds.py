"""No schedule of a problem has a smaller period than this; a plan at its bound is proven optimal.

Every bound follows one chain of work that nobody can shorten: what the busiest worker of a stage must do
however the micro-batches are shared, how long it must wait for the first gradient, how often it must wait
because its memory is full, and, for a stage before it, the way there and back. Other stages are passed at the
speed of their fastest live worker.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.plan.problem import Problem
from holdfast.plan.share import smallest_worst


class _Part(NamedTuple):
    """A worker of a stage, as far as a bound sees it."""

    speed: float
    late: float
    """How long after the earliest possible moment it can start, or must have ended."""


class _Stage(NamedTuple):
    """A stage, with the times of its fastest live worker."""

    forward: float
    input: float
    weight: float
    away: float
    """From the end of a forward here to the start of its backward here: down to the last stage and back."""


def lower_bound(problem: Problem) -> float:
    """Return a value that the period of no valid schedule is below."""
    stages = _passing(problem)
    bound = max(_work(problem, stage, passing.away, is_whole=True) for stage, passing in enumerate(stages))
    to_last = [_work(problem, stage, passing.away, is_whole=False) for stage, passing in enumerate(stages)]
    for first in range(problem.pp):
        bound = _around(problem, stages, first, to_last, bound)
    return bound


def makespan_bound(problem: Problem) -> float:
    """Return a value that the makespan of no valid schedule is below."""
    before = 0.0
    bound = lower_bound(problem)
    for stage, passing in enumerate(_passing(problem)):
        bound = max(bound, before + _work(problem, stage, passing.away, is_whole=True))
        before += passing.forward + problem.comm
    return bound


def _passing(problem: Problem) -> list[_Stage]:
    stages: list[_Stage] = []
    away = 0.0
    for stage in reversed(range(problem.pp)):
        fastest = max(row[stage] for row in problem.speeds)
        forward, input_, weight = (cost / fastest for cost in problem.costs[stage].each)
        stages.append(_Stage(forward, input_, weight, away))
        away += forward + input_ + 2 * problem.comm
    return stages[::-1]


def _busy(problem: Problem, stage: int, away: float, count: int, speed: float) -> tuple[float, float]:
    """Return the least time from a worker's first start to the end of its last I, and to its last end."""
    if count == 0:
        return 0.0, 0.0
    forward, input_, weight = (cost / speed for cost in problem.costs[stage].each)
    cap = problem.cap(stage)
    held = min(cap, count) - 1
    # Until its first gradient is back it can only do the forwards that fit into memory; after its last
    # forward only what is then in flight.
    head = max(0.0, away - held * forward)
    tail = max(0.0, away - held * (input_ + weight))
    idle = head + tail if count > cap else max(head, tail)
    # With `cap` in flight, a forward starts no earlier than one whole turn after the cap-th before it.
    turns, rest = divmod(count - 1, cap)
    turning = rest * forward + (turns + 1) * (forward + away + input_ + weight)
    # At the end of its last I at most `cap` micro-batches still wait for their W.
    to_last_input = count * (forward + input_) + max(0, count - cap) * weight + idle
    whole = count * (forward + input_ + weight) + idle
    return max(to_last_input, turning - weight), max(whole, turning)


def _work(problem: Problem, stage: int, away: float, *, is_whole: bool, lates: Sequence[float] = ()) -> float:
    """Bound the time from a stage's first start to its last end, or only to the end of its last I."""
    speeds = sorted((row[stage] for row in problem.speeds if row[stage] > 0), reverse=True)
    # Only the fastest workers are held to be late: whichever of them is n-th, it is late by the n-th value.
    parts = [
        _Part(speed, lates[place] if lates and speed == speeds[0] else 0.0)
        for place, speed in enumerate(speeds)
    ]

    def time(count: int, part: _Part) -> float:
        return (part.late if count else 0.0) + _busy(problem, stage, away, count, part.speed)[is_whole]

    return smallest_worst(problem.dp * problem.microbatches, parts, time)


def _around(problem: Problem, stages: list[_Stage], first: int, to_last: list[float], bound: float) -> float:
    """Bound the span of a stage by the work of each later one, with the way there and back."""
    weight = stages[first].weight
    for stage, starts, ends in _ways(problem, stages, first):
        reach = starts[0] + ends[0] + weight
        for way in (starts, ends):
            lates = [late - way[0] for late in way]
            if reach + max(lates) + to_last[stage] > bound:  # Else it cannot help; this is the slow part.
                away = stages[stage].away
                bound = max(bound, reach + _work(problem, stage, away, is_whole=False, lates=lates))
    return bound


def _ways(
    problem: Problem, stages: list[_Stage], first: int
) -> Iterator[tuple[int, list[float], list[float]]]:
    """For each stage after the first: the least times by which 1, 2, … dp micro-batches can be there.

    And, counted back from the end of the first stage, by which as many must have left it upwards.
    """
    starts = [0.0] * problem.dp
    weight = stages[first].weight
    ends = [turn - weight for turn in _turns(problem, first, sum(problem.costs[first].each[1:]))]
    for stage in range(first + 1, problem.pp):
        costs = problem.costs[stage - 1]
        starts = _pass(starts, stages[stage - 1].forward, _turns(problem, stage - 1, costs.forward))
        if stage > first + 1:
            ends = _pass(ends, stages[stage - 1].input, _turns(problem, stage - 1, costs.input))
        starts = [start + problem.comm for start in starts]
        ends = [end + problem.comm for end in ends]
        yield stage, starts, ends


def _pass(arrivals: list[float], passing: float, turns: list[float]) -> list[float]:
    return [max(at + passing, arrivals[0] + turn) for at, turn in zip(arrivals, turns, strict=True)]


def _turns(problem: Problem, stage: int, cost: float) -> list[float]:
    """When the workers of a stage, all starting at once, have done 1, 2, … dp pieces of work together."""
    unit = [cost / row[stage] for row in problem.speeds if row[stage] > 0]
    queue = [(time, time) for time in unit]
    heapq.heapify(queue)
    done = []
    for _ in range(problem.dp):
        end, time = queue[0]
        done.append(end)
        heapq.heapreplace(queue, (end + time, time))
    return done
