"""What a spot trace should come to: the periods of its plans, and what coming and going costs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from holdfast.plan.planner import make_plan
from holdfast.plan.problem import Problem, Worker, make_speeds
from returning.spot import Change


@dataclass(frozen=True)
class Costs:
    """Measured beforehand, by ``benchmarks/rejoin.py``: seconds of the clock, whatever the compression."""

    start_s: float
    """From a node's arrival until its worker can be given a place."""
    enter_s: float
    """From being given a place until it works."""
    pause_s: float
    """For which nobody trains when somebody has gone, or enters."""


@dataclass(frozen=True)
class Span:
    """A time in which nobody came or went."""

    start_s: float
    end_s: float
    placed: int
    steps_per_s: float
    """After the pause with which it began."""
    pause_s: float

    @property
    def steps(self) -> float:
        return max(0.0, self.end_s - self.start_s - self.pause_s) * self.steps_per_s


class Shape:
    """The job whose throughput is foretold."""

    def __init__(self, dp: int, pp: int, microbatches: int, op_s: float) -> None:
        self.workers = dp * pp
        self.pp = pp
        self._op_s = op_s

        @lru_cache
        def period(gone: frozenset[int]) -> float:
            speeds = {Worker(*divmod(place, pp)): 0.0 for place in gone}
            problem = Problem(dp=dp, pp=pp, microbatches=microbatches, speeds=make_speeds(dp, pp, speeds))
            return make_plan(problem).period

        self._period = period

    def steps_per_s(self, gone: frozenset[int]) -> float:
        """Return how fast it is without the workers of some places."""
        return 1 / (self._period(gone) * self._op_s)


def foretell(
    shape: Shape, nodes: Sequence[str], changes: Sequence[Change], compress: float, costs: Costs
) -> list[Span]:
    """Return the spans of a trace; an arriving node takes the lowest free place, or is a spare."""
    events: list[tuple[float, int, str, str]] = []
    for number, change in enumerate(changes):
        at_s = change.at_s / compress
        kind = "starts" if change.is_arrival else "leaves"
        heapq.heappush(
            events, (at_s + (costs.start_s if change.is_arrival else 0.0), number, kind, change.node)
        )
    places: dict[int, str] = dict(enumerate(nodes))
    working = set(places)
    spares: list[str] = []
    left: set[str] = set()
    moments = [(0.0, frozenset[int](), 0.0)]
    serial = len(changes)
    while events:
        at_s, _, kind, node = heapq.heappop(events)
        before = set(working)
        if kind == "starts" and node not in left:
            spares.append(node)
        elif kind == "leaves":
            left.add(node)
            spares = [each for each in spares if each != node]
            for place in [place for place, holder in places.items() if holder == node]:
                del places[place]
                working.discard(place)
        elif kind == "enters":
            working |= {place for place, holder in places.items() if holder == node}
        for place in range(shape.workers):
            if place not in places and spares:
                places[place] = spares.pop(0)
                serial += 1
                heapq.heappush(events, (at_s + costs.enter_s, serial, "enters", places[place]))
        if working != before:
            moments.append((at_s, frozenset(range(shape.workers)) - working, costs.pause_s))
    end_s = max(change.at_s for change in changes) / compress
    edges = [*(each for each in moments if each[0] < end_s), (end_s, frozenset[int](), 0.0)]
    return [
        Span(a[0], b[0], shape.workers - len(a[1]), shape.steps_per_s(a[1]), a[2]) for a, b in pairwise(edges)
    ]
