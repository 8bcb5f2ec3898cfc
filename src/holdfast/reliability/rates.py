"""Failure rates with their intervals, and the mean time to failure that they mean for a job of any size.

A job needs all its nodes, so that it fails N times as often as a node: MTTF = 1 / (N rate).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from holdfast.reliability.ettr import mttf_hours, nodes_of
from holdfast.reliability.intervals import LEVEL, Dispersion, quasi_interval, rate_interval

GPUS_PER_NODE = 8
MOST_GPUS = 131_072


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Failures per 1000 node-days."""

    failures: int
    node_days: float
    per_1000_node_days: float | None
    """None: there is no exposure."""
    low: float
    high: float
    """Exact, for failures that come independently on nodes that are alike."""
    wide_low: float
    wide_high: float
    """Quasi-Poisson, where nodes are not alike; else the same."""


class Mttf(msgspec.Struct, frozen=True, kw_only=True):
    """Mean time to failure of jobs of a size."""

    gpus: int
    hours: float
    low: float
    high: float
    """Infinite where no failure was seen."""


def make_rate(
    failures: int, node_days: float, scatter: Dispersion | None = None, level: float = LEVEL
) -> Rate:
    """Return the rate of so many failures in an exposure."""
    low, high = rate_interval(failures, node_days, level)
    wide_low, wide_high = quasi_interval(failures, node_days, scatter.factor if scatter else 1.0, level)
    return Rate(
        failures=failures,
        node_days=node_days,
        per_1000_node_days=1000 * failures / node_days if node_days > 0 else None,
        low=1000 * float(low),
        high=1000 * float(high),
        wide_low=1000 * float(wide_low),
        wide_high=1000 * float(wide_high),
    )


def sizes(gpus_per_node: int = GPUS_PER_NODE, most_gpus: int = MOST_GPUS) -> list[int]:
    """Return the sizes of jobs to tell about, in GPUs: 1, 2, 4, … nodes."""
    found = [gpus_per_node]
    while found[-1] < most_gpus:
        found.append(2 * found[-1])
    return found


def project(rate: Rate, gpus: Sequence[int], gpus_per_node: int = GPUS_PER_NODE) -> list[Mttf]:
    """Return what a rate means for jobs of some sizes; nothing without exposure."""
    if rate.per_1000_node_days is None:
        return []
    nodes = nodes_of(gpus, gpus_per_node)
    ends = [mttf_hours(nodes, each) for each in (rate.per_1000_node_days, rate.high, rate.low)]
    return [
        Mttf(gpus=size, hours=float(hours), low=float(low), high=float(high))
        for size, hours, low, high in zip(gpus, *ends, strict=True)
    ]


def shares(column: pl.Series) -> dict[str, float]:
    """Return what share of rows has each value, the largest first; rows without one are "none"."""
    counts = column.fill_null("none").value_counts(sort=True, name="rows")
    # Equal counts come in any order.
    pairs = sorted(counts.iter_rows(), key=lambda pair: (-pair[1], pair[0]))
    return {str(value): rows / len(column) for value, rows in pairs}


def bucket_of(servers: int) -> int:
    """Return the next power of two."""
    return 1 << max(0, servers - 1).bit_length()


def as_float(value: Any) -> float:
    """Return a sum of polars as a number; of no rows it is 0."""
    return float(np.nan_to_num(0.0 if value is None else value))
