"""Puts the attempts of one logical task together, and says how much of its time was progress (ETTR).

A run is one or more attempts: those of one job id, which a requeued job keeps, and where asked those of jobs
of the same name, user and size, one after the other. Measured ETTR is the paper's: every attempt is taken to
have ended by a failure, so it is a lower bound; time in the queue counts, time before eligibility does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from holdfast.reliability.jobkeys import is_repeated, job_keys, sum_by_job
from holdfast.reliability.status import ratio_interval, size_bucket


@dataclass(frozen=True)
class Habits:
    """What a run does that its records do not tell."""

    checkpoint_min: float | None = 60.0
    """Progress between two checkpoints; None: the best interval for the run's size (Daly-Young)."""
    restart_min: float = 5.0
    """From the start of an attempt to its first step."""
    write_min: float = 0.0
    """For how long a checkpoint holds up training."""
    rate_per_node_day: float | None = None
    """Failures; needed for the best interval."""
    is_lenient: bool = False
    """Whether attempts that completed lose nothing since their last checkpoint."""

    def __post_init__(self) -> None:
        if self.checkpoint_min is None and not (self.rate_per_node_day and self.write_min):
            raise ValueError("the best checkpoint interval needs a failure rate and a write time above 0")


PAPER_V1 = Habits()


def job_runs(
    attempts: pl.DataFrame, habits: Habits = PAPER_V1, *, by_name: bool = False, least_h: float = 24.0
) -> pl.DataFrame:
    """Return one row for each run of at least ``least_h`` of scheduled time: times in hours, ``ettr``."""
    return measure(chain(attempts, by_name=by_name, least_h=least_h), habits, least_h=least_h)


def chain(
    attempts: pl.DataFrame, *, by_name: bool = False, gap_h: float = 24.0, least_h: float = 0.0
) -> pl.DataFrame:
    """Return the attempts that started with a column ``run``, a number, sorted by run and start.

    With ``by_name``, jobs of the same name, user and size are one run if each becomes eligible within
    ``gap_h`` of the end of the one before, and they do not overlap: a sweep is many runs. Attempts that
    cannot be part of a run of ``least_h`` are left out early: there are a hundred times as many.
    """
    is_started = pl.col("start").is_not_null()
    if not by_name:
        # Both at once: the table is wide.
        started = attempts.filter(is_started & _is_long(attempts, least_h))
        return started.with_columns(run=pl.col("job").rank("dense").cast(pl.UInt32)).sort("run", "start")
    key = ["user", "name", "gpus"]
    started = attempts.filter(is_started)
    if least_h > 0:
        started = _long(started, key, least_h)
    started = started.sort(*key, "start", "job")
    # A job is one link, with all its attempts; without a name it stands alone.
    links = started.group_by(*key, "job", maintain_order=True).agg(
        pl.col("start").min().alias("_start"),
        pl.coalesce("eligible", "submit", "start").min().alias("_ready"),
        pl.when(pl.col("end").null_count() == 0).then(pl.col("end").max()).alias("_end"),
    )
    before = pl.col("_end").shift(1).over(key)
    follows = (
        (pl.col("_start") >= before)
        & ((pl.col("_ready") - before).dt.total_seconds() <= gap_h * 3600)
        & pl.col("name").is_not_null()
    ).fill_null(False)
    links = links.with_columns(run=(~follows).cum_sum().cast(pl.UInt32))
    joined = started.join(links.select(*key, "job", "run"), on=[*key, "job"], nulls_equal=True)
    return joined.sort("run", "start")


def measure(chained: pl.DataFrame, habits: Habits = PAPER_V1, *, least_h: float = 24.0) -> pl.DataFrame:
    """Return one row for each run of at least ``least_h`` of scheduled time: times in hours, ``ettr``."""
    ended = chained.filter(pl.col("end").is_not_null())
    timed = ended.with_columns(_scheduled=_hours(pl.col("end") - pl.col("start")), _queued=_queued())
    timed = timed.with_columns(_productive=_productive(habits))
    runs = timed.group_by("run", maintain_order=True).agg(
        pl.col("job", "name", "user", "qos").first(),
        pl.col("priority", "nodes", "gpus").max(),
        pl.len().alias("attempts"),
        pl.col("_queued").sum().alias("queued_h"),
        pl.col("_scheduled").sum().alias("scheduled_h"),
        pl.col("_productive").sum().alias("productive_h"),
    )
    runs = runs.filter(pl.col("scheduled_h") >= least_h)
    wall = pl.col("queued_h") + pl.col("scheduled_h")
    return runs.with_columns(size_bucket(), ettr=pl.when(wall > 0).then(pl.col("productive_h") / wall))


def by_size(runs: pl.DataFrame) -> pl.DataFrame:
    """Return for each size bucket the ETTR of all its runs together, with its interval, and the mean wait."""
    wall = pl.col("queued_h") + pl.col("scheduled_h")
    ettr = pl.col("productive_h").sum() / wall.sum()
    off = pl.col("productive_h") - ettr * wall
    # The runs are a sample of those that could have been; a single one tells nothing of its spread.
    spread = (off**2).sum() * pl.len() / (pl.len() - 1)
    table = runs.group_by("bucket").agg(
        pl.len().alias("runs"),
        (pl.col("queued_h").sum() / pl.col("attempts").sum()).alias("queue_h"),
        ettr.alias("ettr"),
        pl.when(pl.len() > 1).then(spread.sqrt() / wall.sum()).alias("_error"),
    )
    low, high = ratio_interval(pl.col("ettr"), pl.col("_error"))
    return table.with_columns(ettr_low=low, ettr_high=high).drop("_error").sort("bucket")


def _long(started: pl.DataFrame, key: list[str], least_h: float) -> pl.DataFrame:
    """Return the attempts of those who have run for so long in all."""
    ran = started.group_by(key).agg(_hours(pl.col("end") - pl.col("start")).sum().alias("_h"))
    return started.join(ran.filter(pl.col("_h") >= least_h), on=key, how="semi", nulls_equal=True)


def _is_long(attempts: pl.DataFrame, least_h: float) -> pl.Series:
    """Say which attempts are of jobs that have run for so long in all."""
    ran_us = (pl.col("end") - pl.col("start")).dt.total_microseconds().clip(lower_bound=0).fill_null(0)
    each = attempts.select(ran_us.alias("ran_us")).to_series().to_numpy()
    keys = job_keys(attempts["job"])
    is_long = each >= least_h * 3.6e9
    several = np.flatnonzero(is_repeated(keys))  # Most jobs have one attempt, and nothing to add up.
    is_long[several] = sum_by_job(keys[several], each[several]) >= least_h * 3.6e9
    return pl.Series(is_long)


def _hours(duration: pl.Expr) -> pl.Expr:
    return (duration.dt.total_microseconds() / 3.6e9).clip(lower_bound=0)


def _queued() -> pl.Expr:
    """Hours from when the attempt could have started; not before the one that it follows had ended."""
    ready = pl.coalesce("eligible", "submit", "start")
    before = pl.col("end").shift(1).over("run")
    return _hours(pl.col("start") - pl.max_horizontal(ready, before))


def _productive(habits: Habits) -> pl.Expr:
    """Hours of an attempt that were kept: not start, not redone, not writing."""
    interval = _interval_h(habits)
    trained = (pl.col("_scheduled") - habits.restart_min / 60).clip(lower_bound=0)
    redone = pl.min_horizontal(trained, interval / 2)
    if habits.is_lenient:
        redone = pl.when(pl.col("state") == "COMPLETED").then(0.0).otherwise(redone)
    return (trained - redone) / (1 + habits.write_min / 60 / interval)


def _interval_h(habits: Habits) -> pl.Expr:
    if habits.checkpoint_min is not None:
        return pl.lit(habits.checkpoint_min / 60)
    assert habits.rate_per_node_day is not None
    per_node = math.sqrt(2 * habits.write_min / 60 * 24 / habits.rate_per_node_day)
    return per_node / pl.col("nodes").cast(pl.Float64).sqrt()
