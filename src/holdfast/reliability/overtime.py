"""How a failure rate went over time: by the week, with its interval, and where it changed.

A new health check makes hidden failures visible and looks like a rise; only who knows of it can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.detect.rates import rate_changes
from holdfast.reliability.intervals import rate_interval

DAY_S = 86_400.0
WEEK = timedelta(days=7)
_LEAST_SHARE = 0.05
"""A stretch with less than this share of the usual exposure says nothing about a rate."""

Floats = npt.NDArray[np.float64]


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """One week, or whatever the stretches are."""

    start: datetime
    failures: int
    node_days: float
    rate: float | None
    """Per 1000 node-days; None where there was next to no exposure. So are the bounds."""
    low: float | None
    high: float | None


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """The rate became another; per 1000 node-days."""

    start: datetime
    before: float
    after: float


class OverTime(msgspec.Struct, frozen=True, kw_only=True):
    """A rate over time."""

    stretches: list[Stretch]
    shifts: list[Shift]


def rate_over_time(
    failures_s: Floats, exposure: Exposure, *, stretch: timedelta = WEEK, level: float = 0.9
) -> OverTime:
    """Return the rate of failures at these times (seconds since 1970) stretch by stretch."""
    length_s = stretch.total_seconds()
    edges = np.arange(exposure.first_s, exposure.last_s + length_s, length_s)
    edges[-1] = max(edges[-1], exposure.last_s)
    counts = np.histogram(failures_s, edges)[0]
    node_days = np.diff(exposure.node_days_until(edges))
    least = _LEAST_SHARE * float(np.median(node_days)) if len(node_days) else 0.0
    enough = node_days > max(least, 0.0)
    stretches = [
        _stretch(edges[at], int(counts[at]), float(node_days[at]), bool(enough[at]), level)
        for at in range(len(counts))
    ]
    changes = rate_changes(counts.tolist(), np.where(enough, node_days, 0.0).tolist())
    shifts = [
        Shift(start=_time(edges[each.at]), before=1000 * each.before, after=1000 * each.after)
        for each in changes
    ]
    return OverTime(stretches=stretches, shifts=shifts)


class Exposure:
    """How many nodes were under observation when."""

    def __init__(self, starts_s: Floats, ends_s: Floats, nodes: Floats) -> None:
        self.first_s = float(starts_s.min()) if len(starts_s) else 0.0
        self.last_s = float(ends_s.max()) if len(ends_s) else 0.0
        self._begun = _Ramp(starts_s, nodes)
        self._ended = _Ramp(ends_s, nodes)

    def node_days_until(self, times_s: Floats) -> Floats:
        """Return the node-days before each of these times."""
        return (self._begun.until(times_s) - self._ended.until(times_s)) / DAY_S


class _Ramp:
    """The sum of weights times the time since they began: sorted once, then a search for each time."""

    def __init__(self, at_s: Floats, weights: Floats) -> None:
        order = np.argsort(at_s, kind="stable")
        self._at_s = at_s[order]
        self._weights = np.concatenate(([0.0], np.cumsum(weights[order])))
        # Relative to the first, as seconds since 1970 times weights would eat up the digits.
        self._origin_s = float(self._at_s[0]) if len(at_s) else 0.0
        moments = weights[order] * (self._at_s - self._origin_s)
        self._moments = np.concatenate(([0.0], np.cumsum(moments)))

    def until(self, times_s: Floats) -> Floats:
        place = np.searchsorted(self._at_s, times_s)
        return self._weights[place] * (times_s - self._origin_s) - self._moments[place]


def steady(first_s: float, last_s: float, nodes: float) -> Exposure:
    """Return the exposure of as many nodes all the time."""
    return Exposure(np.array([first_s]), np.array([last_s]), np.array([float(nodes)]))


def _stretch(start_s: float, failures: int, node_days: float, is_enough: bool, level: float) -> Stretch:
    known: Sequence[float | None] = (None, None, None)
    if is_enough:
        low, high = rate_interval(failures, node_days, level=level)
        known = (1000 * failures / node_days, 1000 * float(low), 1000 * float(high))
    return Stretch(
        start=_time(start_s),
        failures=failures,
        node_days=node_days,
        rate=known[0],
        low=known[1],
        high=known[2],
    )


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(float(at_s), UTC)
