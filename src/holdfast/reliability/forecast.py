"""What must be true for a wanted ETTR, one knob at a time; curves of sizes; contours of rate and interval."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from holdfast.errors import InputError
from holdfast.reliability.ettr import (
    MIN_PER_DAY,
    Conditions,
    best_interval_min,
    closed_form_of,
    exact_of,
    mttf_hours,
    nodes_of,
)
from holdfast.reliability.intervals import Floats

_MOST = 1e15
_HALVINGS = 100
_TINY = 1e-12


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """From one value to another."""

    low: float
    high: float


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """What each knob alone would have to be, the others as they are; None: it cannot do it alone.

    All but the interval are the most that they may be.
    """

    target: float
    rate_per_1000_node_days: float | None
    checkpoint_min: Range | None
    restart_min: float | None
    write_min: float | None
    queue_min: float | None


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of many sizes at one rate."""

    gpus: Floats
    mttf_hours: Floats
    closed_form: Floats
    exact: Floats
    best: Floats
    """``exact`` with the best interval for each size; where writes are free, with none."""


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A contour of ETTR: for each rate at which the level can be reached, the intervals that do."""

    level: float
    rates_per_1000_node_days: Floats
    shortest_min: Floats
    """0 where writes are free: no interval is too short."""
    longest_min: Floats


def needed(conditions: Conditions, target: float) -> Needed:
    """Solve ``ettr.exact`` for each knob."""
    if not 0 < target < 1:
        raise InputError(f"the wanted ETTR is {target:g}, expected a number between 0 and 1")

    def reached(name: str) -> Callable[[float], float]:
        return lambda value: _exact_with(conditions, name, value)

    most = {name: _most(reached(name), target) for name in ("restart_min", "write_min", "queue_min")}
    per_min = _most(lambda value: float(exact_of(value, conditions)), target)
    rate = None if per_min is None else per_min * 1000 * MIN_PER_DAY / conditions.nodes
    return Needed(
        target=target,
        rate_per_1000_node_days=rate or None,  # That nothing ever fails is no answer.
        checkpoint_min=_interval(conditions, target),
        **most,
    )


def _exact_with(conditions: Conditions, name: str, value: float) -> float:
    changed = msgspec.structs.replace(conditions, **{name: value})
    return float(exact_of(changed.failures_per_min, changed))


def _interval(conditions: Conditions, target: float) -> Range | None:
    """Return the intervals that are neither too short for the writes nor too long for the failures."""
    lam = conditions.failures_per_min
    best = best_interval_min(conditions)

    def at(interval: float) -> float:
        return float(exact_of(lam, conditions, interval))

    start = best or 1e-9 / lam
    if at(start) < target:
        return None
    longer = _most(lambda more: at(start + more), target)
    shorter = 0.0 if best is None else _most(lambda less: at(max(start - less, 1e-12)), target, start)
    assert longer is not None
    assert shorter is not None
    return Range(low=0.0 if best is None else start - shorter, high=start + longer)


def _most(reached: Callable[[float], float], target: float, most: float = _MOST) -> float | None:
    """Return the largest value at which a falling function still reaches the target; None: not even at 0."""
    if reached(0.0) < target:
        return None
    low, high = 0.0, min(1e-9, most)
    while high < most and reached(high) >= target:
        low, high = high, min(2 * high, most)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) >= target else (low, middle)
    return low


def curve(conditions: Conditions, gpus: ArrayLike, gpus_per_node: int = 8) -> Curve:
    """Return MTTF and ETTR for many sizes; the nodes of ``conditions`` are not looked at."""
    size = np.asarray(gpus, float)
    nodes = nodes_of(size, gpus_per_node)
    lam = nodes * conditions.rate_per_1000_node_days / 1000 / MIN_PER_DAY
    return Curve(
        gpus=size,
        mttf_hours=mttf_hours(nodes, conditions.rate_per_1000_node_days),
        closed_form=closed_form_of(lam, conditions),
        exact=exact_of(lam, conditions),
        best=exact_of(lam, conditions, _best_intervals(lam, conditions.write_min)),
    )


def contour(conditions: Conditions, rates_per_1000_node_days: ArrayLike, level: float) -> Band:
    """Return where ``ettr.exact`` reaches a level, for rising rates; the higher, the fewer intervals do."""
    rates = np.asarray(rates_per_1000_node_days, float)
    lam = conditions.nodes * rates / 1000 / MIN_PER_DAY
    best = _best_intervals(lam, conditions.write_min)
    can = exact_of(lam, conditions, best) >= level
    lam, best = lam[can], best[can]

    def edge(outside: Floats) -> Floats:
        """Return the interval between the best one and one that is no good at which the level is reached."""
        inside = best
        for _ in range(_HALVINGS):
            middle = np.sqrt(inside * outside)
            is_good = exact_of(lam, conditions, middle) >= level
            inside, outside = np.where(is_good, middle, inside), np.where(is_good, outside, middle)
        return inside

    shortest = edge(best * _TINY) if conditions.write_min else np.zeros_like(best)
    longest = edge(np.full_like(best, _MOST))
    return Band(level=level, rates_per_1000_node_days=rates[can], shortest_min=shortest, longest_min=longest)


def _best_intervals(lam: Floats, write_min: float) -> Floats:
    """Return the best interval for each rate, as ``best_interval_min``; next to none if writes are free."""
    best = np.nan_to_num((1 + lambertw(-np.exp(-lam * write_min - 1)).real) / lam)
    return np.asarray(np.maximum(best, 1e-6 / lam))
