"""Failure rates from a record of outages, by system.

Every row is a failure. The exposure is all nodes of the system times the days from its first failure to its
last, unless the days are given; nodes that never failed count. With k failures the rate is too high by about
2/k, since the system was watched for longer. Front ends are told apart: they are used in other ways than the
other nodes, and fail more often.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from holdfast.reliability.intervals import LEVEL, Dispersion, Floats, dispersion
from holdfast.reliability.rates import Rate, make_rate, shares

EXPOSURE = "nodes of the system x (last minus first failure); every row is a failure"
FRONT_END = "front end"
HARDWARE = "Hardware"
_TOP = 5


class SystemRates(msgspec.Struct, frozen=True, kw_only=True):
    """What one record says of one system, or of all."""

    nodes: int
    days: float
    """From the first failure to the last; of several systems, those of a node on average."""
    rate: Rate
    hardware: Rate
    """Of failures that were blamed on hardware."""
    front_end: Rate | None
    others: Rate | None
    """Without the front ends; None: none are known."""
    scatter: Dispersion | None
    """Of failures per node, without front ends."""
    causes: dict[str, float]
    details: dict[str, float]
    """The most frequent ones, in the record's own words, as shares of all rows."""


class OutageRates(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says."""

    whole: SystemRates
    systems: dict[str, SystemRates]
    exposure: str


def rates_of_outages(
    outages: pl.DataFrame, *, days: float | None = None, level: float = LEVEL
) -> OutageRates:
    """Return the rates of all systems and of each; ``days`` is how long each was watched."""
    named = outages.with_columns(pl.col("system").fill_null("unnamed"), pl.col("node").fill_null("unnamed"))
    names = sorted(named["system"].unique().to_list(), key=_by_number)
    parts = {name: named.filter(pl.col("system") == name) for name in names}
    nodes = {name: _count_nodes(part, days) for name, part in parts.items()}
    counts = pl.concat(list(nodes.values())) if nodes else _count_nodes(named, days)
    return OutageRates(
        whole=_rates(named, counts, level),
        systems={name: _rates(part, nodes[name], level) for name, part in parts.items()},
        exposure=EXPOSURE if days is None else f"nodes of the system x {days:g} days; every row is a failure",
    )


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), name) if name.isdecimal() else (2**62, name)


def _count_nodes(part: pl.DataFrame, days: float | None) -> pl.DataFrame:
    """Return one row per node of one system: its failures, its days, whether it is a front end."""
    seen = part.group_by("node").agg(
        failures=pl.len().cast(pl.Float64),
        is_front=(pl.col("role") == FRONT_END).fill_null(value=False).any(),
    )
    told = part["system_nodes"].max() if len(part) else None
    silent = max(0, int(told) - len(seen)) if isinstance(told, int) else 0
    quiet = pl.DataFrame({"failures": np.zeros(silent), "is_front": np.zeros(silent, dtype=bool)})
    return pl.concat([seen.select("failures", "is_front").sort("failures"), quiet]).with_columns(
        days=pl.lit(_days(part) if days is None else days)
    )


def _days(part: pl.DataFrame) -> float:
    """Return how long the record of one system is."""
    first, last = part["at"].min(), part["at"].max()
    if first is None or last is None:
        return 0.0
    return float((last - first).total_seconds()) / 86_400  # type: ignore[operator,union-attr]


def _rates(part: pl.DataFrame, counts: pl.DataFrame, level: float) -> SystemRates:
    failures, days = _floats(counts, "failures"), _floats(counts, "days")
    is_front = counts["is_front"].to_numpy().astype(bool)
    scatter = dispersion(failures[~is_front], days[~is_front])
    node_days = float(days.sum())
    hardware = int((part["cause"] == HARDWARE).sum())
    return SystemRates(
        nodes=len(counts),
        days=float(days.mean()) if len(counts) else 0.0,
        rate=make_rate(len(part), node_days, scatter, level),
        hardware=make_rate(hardware, node_days, scatter, level),
        front_end=_rate_where(failures, days, is_front, level),
        others=_rate_where(failures, days, ~is_front, level, scatter) if is_front.any() else None,
        scatter=scatter,
        causes=shares(part["cause"]),
        details=dict(list(shares(part["detail"]).items())[:_TOP]),
    )


def _rate_where(
    failures: Floats,
    days: Floats,
    where: np.ndarray[tuple[int], np.dtype[np.bool_]],
    level: float,
    scatter: Dispersion | None = None,
) -> Rate | None:
    if not where.any():
        return None
    return make_rate(int(failures[where].sum()), float(days[where].sum()), scatter, level)


def _floats(table: pl.DataFrame, name: str) -> Floats:
    return table[name].to_numpy().astype(np.float64)
