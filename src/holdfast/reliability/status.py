"""How attempts end and how large they are, by count and by GPU time, each share with its interval."""

from __future__ import annotations

from datetime import datetime

import polars as pl
from scipy.special import ndtri

from holdfast.reliability.intervals import LEVEL, share_interval

_TIMED = ("start", "end", "gpus")
"""What GPU hours are made of."""
_SUMS = ("attempts", "gpu_hours", "_squares")


def gpu_hours(until: datetime | None = None) -> pl.Expr:
    """GPU hours of an attempt; one that still runs counts up to ``until``, or not at all."""
    end = pl.coalesce(pl.col("end"), pl.lit(until, dtype=pl.Datetime("us", "UTC")))
    hours = (end - pl.col("start")).dt.total_microseconds() / 3.6e9 * pl.col("gpus")
    return hours.clip(lower_bound=0).fill_null(0.0)


def size_bucket() -> pl.Expr:
    """The smallest power of two that holds the attempt's GPUs; 0 for attempts without GPUs."""
    # A logarithm of a power of two may be a digit too large.
    power = (pl.col("gpus").cast(pl.Float64).log(2) - 1e-9).ceil().clip(lower_bound=0)
    bucket = pl.when(pl.col("gpus") == 0).then(0).otherwise(pl.lit(2.0).pow(power))
    return bucket.cast(pl.UInt32).alias("bucket")


def status_mix(attempts: pl.DataFrame, until: datetime | None = None) -> pl.DataFrame:
    """Return for each state its share of the attempts and of their GPU time, the largest first.

    Attempts that never started are left out.
    """
    started = attempts.select("state", *_TIMED).filter(pl.col("start").is_not_null())
    mixed = _mix(started, "state", until).with_columns(pl.col("state").cast(pl.String))
    return mixed.sort("attempts", "state", descending=[True, False])


def size_mix(attempts: pl.DataFrame, until: datetime | None = None) -> pl.DataFrame:
    """Return for each size bucket its share of the attempts and of their GPU time, the smallest first."""
    started = attempts.select(_TIMED).filter(pl.col("start").is_not_null() & pl.col("gpus").is_not_null())
    # There are far fewer sizes than attempts, and a logarithm takes long.
    sizes = _sums(started, "gpus", until).with_columns(size_bucket())
    return _shares(sizes.group_by("bucket").agg(pl.col(_SUMS).sum()), "bucket").sort("bucket")


def hardware_share(attributed: pl.DataFrame, until: datetime | None = None) -> pl.DataFrame:
    """Return, in one row, what share of the attempts and of the GPU time the cluster's failures touch."""
    started = attributed.select("is_hardware", *_TIMED).filter(pl.col("start").is_not_null())
    mixed = _mix(started, "is_hardware", until).filter(pl.col("is_hardware"))
    return mixed.drop("is_hardware")


def ratio_interval(value: pl.Expr, error: pl.Expr, level: float = LEVEL) -> tuple[pl.Expr, pl.Expr]:
    """Return the bounds of a share of which the standard error is known, within 0 and 1."""
    reach = float(ndtri((1 + level) / 2)) * error
    return (value - reach).clip(0, 1), (value + reach).clip(0, 1)


def _mix(started: pl.DataFrame, key: str, until: datetime | None) -> pl.DataFrame:
    """Return count, GPU hours, both shares and their intervals for each value of a column."""
    return _shares(_sums(started, key, until), key)


def _sums(started: pl.DataFrame, key: str, until: datetime | None) -> pl.DataFrame:
    timed = started.select(key, _hours=gpu_hours(until))
    return timed.group_by(key).agg(
        pl.len().cast(pl.Int64).alias("attempts"),
        pl.col("_hours").sum().alias("gpu_hours"),
        (pl.col("_hours") ** 2).sum().alias("_squares"),
    )


def _shares(grouped: pl.DataFrame, key: str) -> pl.DataFrame:
    grouped = grouped.with_columns(
        share=pl.col("attempts") / pl.col("attempts").sum(),
        # Of no GPU time at all, nobody has a share.
        gpu_share=(pl.col("gpu_hours") / pl.col("gpu_hours").sum()).fill_nan(0.0),
    )
    low, high = _count_interval(grouped)
    # The sum over attempts of the squared distance from the share, each attempt weighing its own hours.
    others = pl.col("_squares").sum() - pl.col("_squares")
    square = (1 - pl.col("gpu_share")) ** 2 * pl.col("_squares") + pl.col("gpu_share") ** 2 * others
    error = (square.sqrt() / pl.col("gpu_hours").sum()).fill_nan(0.0)
    gpu_low, gpu_high = ratio_interval(pl.col("gpu_share"), error)
    return grouped.with_columns(low, high, gpu_share_low=gpu_low, gpu_share_high=gpu_high).select(
        key,
        "attempts",
        "share",
        "share_low",
        "share_high",
        "gpu_hours",
        "gpu_share",
        "gpu_share_low",
        "gpu_share_high",
    )


def _count_interval(grouped: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Return the exact interval of each share of the count."""
    count = grouped["attempts"].to_numpy()
    low, high = share_interval(count, count.sum(), LEVEL)
    return pl.Series("share_low", low), pl.Series("share_high", high)
