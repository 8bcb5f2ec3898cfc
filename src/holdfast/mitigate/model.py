"""How slow a condition makes a job under an arrangement: a step's time over that of a healthy one.

Coarse on purpose: what counts is the difference between two arrangements, and whether it came about is
measured afterwards. ``Stages`` is a ``holdfast.Pipeline``, whose micro-batches go to whichever worker of a
stage has time; ``Replicas`` is any other job, whose pipelines take whole micro-batches through.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import msgspec

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.plan.share import split


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as far as its speed depends on it. Place ``pipeline * pp + stage`` is one worker."""

    dp: int
    pp: int = 1
    microbatches: int
    """Of each pipeline, in a step of a healthy job."""
    data_share: float = 0.0
    """Of a healthy step, the part in which the workers of a stage exchange gradients and nothing else."""
    stage_share: float = 0.0
    """The part in which a pipeline waits for what travels between its stages."""
    pile_up: float = 0.0
    """Of what slow links cost a further stage, the part that is not hidden behind the slowest one."""
    nodes: tuple[int, ...] = ()
    """The machine that each rank runs on; none: each has its own. Links are between machines."""
    host: int | None = None
    """The machine that cannot be sent away, since the others meet there."""

    @property
    def places(self) -> int:
        return self.dp * self.pp

    @property
    def total(self) -> int:
        """Micro-batches of a step."""
        return self.dp * self.microbatches

    def node(self, rank: int) -> int:
        """Return the machine that a rank runs on."""
        return self.nodes[rank] if self.nodes else rank


Traffic = Mapping[tuple[int, int], float]


class Model(Protocol):
    """What the decisions need to know of a job."""

    shape: Shape

    def slowdown(self, condition: Condition, arrangement: Arrangement) -> float:
        """Return a step's time over a healthy one's; 1 in a healthy job as it was."""

    def is_possible(self, arrangement: Arrangement) -> bool:
        """Say whether the job can be arranged so."""


class _Counted(ABC):
    """What both kinds of job have in common."""

    def __init__(self, shape: Shape, *, spares: int = 0) -> None:
        self.shape = shape
        self._spares = spares
        self.slowdown = lru_cache(maxsize=4096)(self._slowdown)
        """Remembered: the same few arrangements are weighed again and again."""

    def is_possible(self, arrangement: Arrangement) -> bool:
        """Say whether somebody is left to do the work."""
        return len(self._hit(arrangement)) < self.shape.dp

    @abstractmethod
    def _slowdown(self, condition: Condition, arrangement: Arrangement) -> float:
        """Return what ``slowdown`` remembers."""

    def _hit(self, arrangement: Arrangement) -> set[int]:
        """Pipelines that miss a worker, after the spares have taken what places they can."""
        missing = sorted(place for place in range(self.shape.places) if self._is_out(arrangement, place))
        return {place // self.shape.pp for place in missing[self._spares :]}

    def _is_out(self, arrangement: Arrangement, place: int) -> bool:
        return arrangement.holder(place) in arrangement.without

    def _traffic(self, condition: Condition, arrangement: Arrangement) -> dict[tuple[int, int], float]:
        """By pair of machines, how much longer everything between them takes."""
        node, gone = self.shape.node, set(arrangement.without)
        return {
            _pair(node(link.first), node(link.second)): link.factor
            for link in condition.links
            if not {link.first, link.second} & gone
        }

    def _exchanges(self, traffic: Traffic, arrangement: Arrangement) -> float:
        """How long all stages take to exchange their gradients."""
        share = self.shape.data_share
        if not traffic:
            return share
        *others, slowest = sorted(self._exchange(traffic, arrangement, s) for s in range(self.shape.pp))
        return slowest + self.shape.pile_up * sum(each - share for each in others)

    def _exchange(self, traffic: Traffic, arrangement: Arrangement, stage: int) -> float:
        """How long a stage takes to exchange its gradients: as long as its slowest link."""
        nodes = {
            self.shape.node(arrangement.holder(place))
            for place in range(stage, self.shape.places, self.shape.pp)
        }
        factors = [factor for (a, b), factor in traffic.items() if a in nodes and b in nodes]
        return self.shape.data_share * max([1.0, *factors])

    def _transfer(self, traffic: Traffic, arrangement: Arrangement, pipeline: int) -> float:
        """How long a pipeline waits for its transfers: each of its links for its part of them."""
        pp = self.shape.pp
        if pp == 1 or not traffic:
            return self.shape.stage_share
        nodes = [self.shape.node(arrangement.holder(pipeline * pp + stage)) for stage in range(pp)]
        factors = [traffic.get(_pair(a, b), 1.0) for a, b in pairwise(nodes)]
        return self.shape.stage_share * sum(factors) / (pp - 1)

    @property
    def _compute_share(self) -> float:
        return 1.0 - self.shape.data_share - self.shape.stage_share


class Replicas(_Counted):
    """A job whose pipelines each take micro-batches through all of their stages."""

    def _slowdown(self, condition: Condition, arrangement: Arrangement) -> float:
        shape, speeds = self.shape, dict(condition.speeds)
        hit = self._hit(arrangement)
        pipelines = [number for number in range(shape.dp) if number not in hit]
        if not pipelines:
            return float("inf")
        counts = self._counts(arrangement, pipelines)
        traffic = self._traffic(condition, arrangement)
        healthy = shape.microbatches + shape.pp - 1
        slowest = max(
            self._compute_share * self._through(arrangement, speeds, pipeline, count) / healthy
            + self._transfer(traffic, arrangement, pipeline)
            for pipeline, count in zip(pipelines, counts, strict=True)
        )
        return slowest + self._exchanges(traffic, arrangement)

    def _counts(self, arrangement: Arrangement, pipelines: list[int]) -> list[int]:
        """How many micro-batches each pipeline takes, by what the plan reckons with."""
        reckoned = dict(arrangement.reckoned)
        speeds = [min(self._speeds_of(arrangement, reckoned, pipeline)) for pipeline in pipelines]
        return split(self.shape.total, speeds, overhead=self.shape.pp - 1, at_least=1)

    def _speeds_of(self, arrangement: Arrangement, speeds: Mapping[int, float], pipeline: int) -> list[float]:
        first = pipeline * self.shape.pp
        return [
            1.0 if self._is_out(arrangement, place) else speeds.get(arrangement.holder(place), 1.0)
            for place in range(first, first + self.shape.pp)
        ]

    def _through(
        self, arrangement: Arrangement, speeds: Mapping[int, float], pipeline: int, count: int
    ) -> float:
        """How long a pipeline takes for its micro-batches: its slowest stage, filled and drained once."""
        times = [1 / speed for speed in self._speeds_of(arrangement, speeds, pipeline)]
        return (count - 1) * max(times) + sum(times)


class Stages(_Counted):
    """A ``holdfast.Pipeline``: each stage's micro-batches are shared by the workers of that stage."""

    def is_possible(self, arrangement: Arrangement) -> bool:
        """Say whether every stage has a worker left."""
        shape = self.shape
        out = [place for place in range(shape.places) if self._is_out(arrangement, place)][self._spares :]
        return all(sum(place % shape.pp == stage for place in out) < shape.dp for stage in range(shape.pp))

    def _slowdown(self, condition: Condition, arrangement: Arrangement) -> float:
        if not self.is_possible(arrangement):
            return float("inf")
        shape = self.shape
        traffic = self._traffic(condition, arrangement)
        waits = max(self._transfer(traffic, arrangement, pipeline) for pipeline in range(shape.dp))
        stages = [
            self._compute_share * self._busiest(condition, arrangement, stage) / shape.microbatches
            + self._exchange(traffic, arrangement, stage)
            for stage in range(shape.pp)
        ]
        return max(stages) + waits

    def _busiest(self, condition: Condition, arrangement: Arrangement, stage: int) -> float:
        """How long the worker of a stage takes that is done last, in micro-batches of a healthy one."""
        shape, speeds, reckoned = self.shape, dict(condition.speeds), dict(arrangement.reckoned)
        places = range(stage, shape.places, shape.pp)
        out = [place for place in places if self._is_out(arrangement, place)][self._spares :]
        holders = [arrangement.holder(place) for place in places if place not in out]
        counts = split(shape.total, [reckoned.get(rank, 1.0) for rank in holders])
        return max(count / speeds.get(rank, 1.0) for rank, count in zip(holders, counts, strict=True))


def best_exchange(
    model: Model, condition: Condition, arrangement: Arrangement, *, most: int = 4
) -> Arrangement:
    """Return the arrangement with the fewest exchanges, each the one that helps most.

    Slow workers change places with others one by one, machines with slow links as a whole. Of equal exchanges
    the one between nearer places is made, with a preference for the inner stages: the first and the last
    have more to do than the others in most jobs.
    """
    shape = model.shape
    found, value = arrangement, model.slowdown(condition, arrangement)
    for _ in range(most):
        ranked = sorted(
            (model.slowdown(condition, each), *_reluctance(pairs, shape), pairs)
            for pairs in _exchanges_of(condition, found, shape)
            for each in [_exchanged(found, pairs, shape)]
        )
        if not ranked or ranked[0][0] > value * (1 - _LEAST_GAIN):
            break
        value, found = ranked[0][0], _exchanged(found, ranked[0][-1], shape)
    return found


Pairs = tuple[tuple[int, int], ...]
"""Places whose holders change."""


def _exchanges_of(condition: Condition, arrangement: Arrangement, shape: Shape) -> set[Pairs]:
    """Return the exchanges that move part of the trouble to another place."""
    if shape.pp == 1:
        return set()  # All places are alike; and there may be ten thousand of them.
    places = {arrangement.holder(place): place for place in range(shape.places)}
    found: set[Pairs] = set()
    for rank, _ in condition.speeds:
        for other in range(shape.places):
            if other != places[rank]:
                found.add((_pair(places[rank], other),))
    on_node: dict[int, list[int]] = {}
    for rank in sorted(places):
        on_node.setdefault(shape.node(rank), []).append(places[rank])
    for link in condition.links:
        for end in (shape.node(link.first), shape.node(link.second)):
            for other, theirs in on_node.items():
                if other != end and len(theirs) == len(on_node[end]):
                    found.add(tuple(sorted(map(_pair, on_node[end], theirs))))
    return found


def _exchanged(arrangement: Arrangement, pairs: Pairs, shape: Shape) -> Arrangement:
    for pair in pairs:
        arrangement = arrangement.swapped(*pair, shape.places)
    return arrangement


_LEAST_GAIN = 0.005
"""An exchange has to shorten the step by so much."""


def _reluctance(pairs: Pairs, shape: Shape) -> tuple[int, int]:
    ends = sum(place % shape.pp in (0, shape.pp - 1) for pair in pairs for place in pair)
    return ends, sum(abs(first - second) for first, second in pairs)


def _pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
