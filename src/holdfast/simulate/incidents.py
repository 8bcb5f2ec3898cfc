"""Histories of trouble for a job that is not there: what is wrong when, and how slow that makes it."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from holdfast.mitigate.condition import Condition, SlowLink, make_speeds
from holdfast.mitigate.model import Model, Replicas, Shape, Stages
from holdfast.mitigate.prices import Deed


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, from when to when by the clock."""

    start_s: float
    end_s: float
    speeds: tuple[tuple[int, float], ...] = ()
    links: tuple[SlowLink, ...] = ()


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and everything that befalls it."""

    shape: Shape
    is_stages: bool
    """Whether its micro-batches can go to any worker of a stage."""
    healthy_s: float
    prices: dict[Deed, float]
    troubles: tuple[Trouble, ...]
    horizon_s: float
    spares: int = 0

    def model(self) -> Model:
        """Return how its speed depends on what is wrong."""
        kind = Stages if self.is_stages else Replicas
        return kind(self.shape, spares=self.spares)


class Weather:
    """What is wrong at any time; constant between two of its boundaries."""

    def __init__(self, troubles: Sequence[Trouble], *, delay_s: float = 0.0) -> None:
        """Shift everything by a delay, for somebody who learns of it later."""
        times = {0.0} | {at_s + delay_s for each in troubles for at_s in (each.start_s, each.end_s)}
        self.boundaries = sorted(times)
        self._conditions = [_joined(troubles, at_s - delay_s) for at_s in self.boundaries]

    def at(self, at_s: float) -> Condition:
        """Return what is wrong at a time."""
        return self._conditions[bisect_right(self.boundaries, at_s) - 1]

    def next_s(self, at_s: float) -> float:
        """Return when that changes; never, after the last time."""
        number = bisect_right(self.boundaries, at_s)
        return self.boundaries[number] if number < len(self.boundaries) else float("inf")

    def spans(self, horizon_s: float) -> list[tuple[float, Condition]]:
        """Return for how long what was wrong, in order."""
        edges = [*[each for each in self.boundaries if each < horizon_s], horizon_s]
        return [(b - a, self.at(a)) for a, b in pairwise(edges)]


def _joined(troubles: Sequence[Trouble], at_s: float) -> Condition:
    """Join what is wrong at a time; a rank that two things slow down suffers from both."""
    speeds: dict[int, float] = {}
    links: dict[tuple[int, int], float] = {}
    for each in troubles:
        if each.start_s <= at_s < each.end_s:
            for rank, speed in each.speeds:
                speeds[rank] = speeds.get(rank, 1.0) * speed
            for link in each.links:
                pair = (link.first, link.second)
                links[pair] = max(links.get(pair, 1.0), link.factor)
    found = tuple(sorted(SlowLink(*pair, factor) for pair, factor in links.items()))
    return Condition(speeds=make_speeds(speeds), links=found)


# --- histories by seed ------------------------------------------------------------------------

_SHAPES = ((4, 1), (8, 1), (2, 4), (4, 2), (4, 4), (8, 4), (16, 2))
_TAIL_S = 1800.0
"""Healthy time after the last trouble, in which whatever was done about it may be undone."""


def draw_history(seed: int, *, troubles: int) -> History:
    """Return a random job with so many troubles, which may overlap."""
    rng = random.Random(seed)
    dp, pp = rng.choice(_SHAPES)
    shape = Shape(
        dp=dp,
        pp=pp,
        microbatches=rng.choice((4, 8, 16, 32)),
        data_share=rng.uniform(0.05, 0.3),
        stage_share=rng.uniform(0.0, 0.1) if pp > 1 else 0.0,
        pile_up=0.2,
    )
    replan_s = _log_uniform(rng, 0.05, 5.0)
    exchange_s = replan_s + _log_uniform(rng, 0.5, 60.0)
    prices: dict[Deed, float] = {
        "replan": replan_s,
        "exchange": exchange_s,
        "restart": exchange_s + _log_uniform(rng, 30.0, 1800.0),
    }
    found = []
    start_s = rng.uniform(10.0, 300.0)
    for _ in range(troubles):
        end_s = start_s + _log_uniform(rng, 2.0, 7200.0)
        found.append(_draw_trouble(rng, shape, start_s, end_s))
        start_s += _log_uniform(rng, 5.0, 3600.0)
    return History(
        shape=shape,
        is_stages=pp > 1 and rng.random() < 0.5,
        healthy_s=_log_uniform(rng, 0.2, 10.0),
        prices=prices,
        troubles=tuple(found),
        horizon_s=max(each.end_s for each in found) + _TAIL_S,
        spares=rng.choice((0, 1)),
    )


def _draw_trouble(rng: random.Random, shape: Shape, start_s: float, end_s: float) -> Trouble:
    if rng.random() < 0.4:
        stage = rng.randrange(shape.pp)
        first, second = sorted(rng.sample(range(stage, shape.places, shape.pp), 2))
        link = SlowLink(first, second, rng.uniform(1.5, 10.0))
        return Trouble(start_s=start_s, end_s=end_s, links=(link,))
    ranks = rng.sample(range(shape.places), rng.choice((1, 1, 1, 2)))
    speeds = make_speeds({rank: rng.uniform(0.3, 0.9) for rank in ranks})
    return Trouble(start_s=start_s, end_s=end_s, speeds=speeds)


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())
