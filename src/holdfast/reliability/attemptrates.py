"""Failure rates from attempts of jobs: of the fleet, and by the size of jobs.

The rate of the fleet is that of Kokolis et al. (2024): over attempts with more than 128 GPUs, those that
ended because of hardware (NODE_FAIL, or marked ``is_hardware`` by attribution), per node-day of running. It
counts one failure per attempt, however many nodes failed at once.
"""

from __future__ import annotations

import msgspec
import polars as pl

from holdfast.reliability.intervals import LEVEL, rate_interval
from holdfast.reliability.rates import GPUS_PER_NODE, Rate, as_float, bucket_of, make_rate

OVER_GPUS = 128
_GOING_ON = ("RUNNING", "SUSPENDED")


class SizeMttf(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts of about one size went through."""

    gpus: int
    """Most of the bucket: whole servers, rounded up to a power of two of them."""
    attempts: int
    failures: int
    job_hours: float
    node_days: float
    mttf_hours: float | None
    """None: no failure was seen."""
    low: float
    high: float | None
    projected_hours: float | None
    """By the rate of the fleet, for the nodes that these attempts had on average."""


class AttemptRates(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts say of failures."""

    rate: Rate
    over_gpus: int
    attempts: int
    """That the rate comes from."""
    unmeasured: int
    """Attempts of any size that ran, but whose length or size is not known."""
    sizes: list[SizeMttf]
    exposure: str


def rates_of_attempts(
    attempts: pl.DataFrame,
    *,
    over_gpus: int = OVER_GPUS,
    gpus_per_node: int = GPUS_PER_NODE,
    level: float = LEVEL,
    ran: pl.DataFrame | None = None,
) -> AttemptRates:
    """Return the fleet's rate and the mean time to failure by size; ``ran`` is what ``measured`` told."""
    ran = measured(attempts, gpus_per_node) if ran is None else ran
    known = ran.filter(pl.col("gpus").is_not_null() & pl.col("days").is_not_null() & (pl.col("gpus") > 0))
    large = known.filter(pl.col("gpus") > over_gpus)
    rate = make_rate(
        int(as_float(large["is_failure"].sum())), as_float(large["node_days"].sum()), level=level
    )
    return AttemptRates(
        rate=rate,
        over_gpus=over_gpus,
        attempts=len(large),
        unmeasured=int(ran.select((pl.col("gpus").is_null() | pl.col("days").is_null()).sum()).item()),
        sizes=_by_size(known, rate, gpus_per_node, level),
        exposure=_say_exposure(attempts, over_gpus),
    )


def _say_exposure(attempts: pl.DataFrame, over_gpus: int) -> str:
    marked = " or marked as hardware" if "is_hardware" in attempts.columns else ""
    return (
        f"nodes x running time of attempts with more than {over_gpus} GPUs; "
        f"every attempt that ended in NODE_FAIL{marked} is a failure"
    )


def measured(attempts: pl.DataFrame, gpus_per_node: int) -> pl.DataFrame:
    """Return size, length and fate of every attempt that ran."""
    tells_gpus = as_float(attempts["gpus"].max()) > 0
    # Where no attempt tells its GPUs, jobs have whole nodes; where others do, one that does not has none.
    whole = pl.col("nodes") * gpus_per_node
    gpus = pl.col("gpus").fill_null(0) if tells_gpus else whole
    marked = (
        pl.col("is_hardware").fill_null(value=False)
        if "is_hardware" in attempts.columns
        else pl.lit(value=False)
    )
    return (
        attempts.lazy()
        .filter(pl.col("start").is_not_null())
        .with_columns(gpus=gpus.cast(pl.Int64), end=_ends(attempts))
        .with_columns(servers=(pl.col("gpus") + gpus_per_node - 1) // gpus_per_node)
        .select(
            "gpus",
            "servers",
            "start",
            "end",
            is_failure=(pl.col("state") == "NODE_FAIL").fill_null(value=False) | marked,
            days=(pl.col("end") - pl.col("start")).dt.total_microseconds().clip(lower_bound=0) / 86.4e9,
            nodes=pl.coalesce(pl.col("nodes").cast(pl.Int64), "servers"),
        )
        .with_columns(node_days=pl.col("nodes") * pl.col("days"))
        .collect()
    )


def _ends(attempts: pl.DataFrame) -> pl.Expr:
    """Return the end of each attempt; one that goes on has run until the last moment that is told of."""
    last = attempts.select(pl.max_horizontal(pl.col("submit", "eligible", "start", "end").max())).item()
    is_going_on = pl.col("end").is_null() & pl.col("state").is_in(_GOING_ON)
    return pl.when(is_going_on).then(pl.lit(last, dtype=attempts.schema["end"])).otherwise(pl.col("end"))


def _by_size(known: pl.DataFrame, rate: Rate, gpus_per_node: int, level: float) -> list[SizeMttf]:
    """Return buckets that have attempts, the smallest first."""
    # By each size first, of which there are few.
    by_servers = known.group_by("servers").agg(
        pl.len().alias("attempts"), pl.col("is_failure", "days", "node_days").sum()
    )
    servers: list[int] = by_servers["servers"].to_list()
    buckets = pl.DataFrame(
        {"servers": servers, "bucket": [gpus_per_node * bucket_of(each) for each in servers]},
        schema={"servers": pl.Int64, "bucket": pl.Int64},
    )
    table = (
        by_servers.join(buckets, on="servers")
        .group_by("bucket")
        .agg(pl.col("attempts", "is_failure", "days", "node_days").sum())
        .sort("bucket")
    )
    return [_size(*row, rate=rate, level=level) for row in table.iter_rows()]


def _size(  # noqa: PLR0913 - a row of the table above.
    gpus: int, attempts: int, failures: int, days: float, node_days: float, *, rate: Rate, level: float
) -> SizeMttf:
    hours = 24 * days
    low, high = rate_interval(failures, hours, level)
    expected = (rate.per_1000_node_days or 0.0) * node_days / 1000
    return SizeMttf(
        gpus=gpus,
        attempts=attempts,
        failures=failures,
        job_hours=hours,
        node_days=node_days,
        mttf_hours=hours / failures if failures else None,
        low=1 / float(high) if high > 0 else 0.0,
        high=1 / float(low) if low > 0 else None,
        projected_hours=hours / expected if expected > 0 else None,
    )
