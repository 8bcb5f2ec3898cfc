"""GPU time that failures cost: of the attempts they end, and of those preempted to restart their victims.

With hourly checkpoints an interruption loses half an hour on average, so an attempt that was interrupted lost
min(runtime, 30 min) x GPUs. First order: attempts that the cluster's failures ended. Second order: attempts
preempted by a job that was restarted because of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from holdfast.reliability.attribution import on_nodes
from holdfast.reliability.status import size_bucket

LOST_MIN = 30.0
"""Half of an hourly checkpoint interval."""
GRACE_S = 600.0
"""Within which a job starts on the nodes that were cleared for it; Slurm gives the victims time to end."""
SOON_S = 60.0
"""The same, where nobody tells for whom they were cleared."""
_STARTS = ("job", "attempt", "start", "priority", "gpus", "node_list")
_NEEDED = (*_STARTS, "end", "state", "preemptor", "is_hardware")


@dataclass(frozen=True)
class Share:
    """Of the second order in all that failures cost."""

    value: float
    low: float
    high: float
    failures: int
    """That it was drawn from."""


def lost(attributed: pl.DataFrame, *, lost_min: float = LOST_MIN) -> pl.DataFrame:
    """Return one row for each attempt that failures cost something, directly or by a preemption.

    Columns: job, attempt, gpus, bucket, order (1 or 2), lost_gpu_h, and the failure that it goes back to:
    by_job, by_attempt (of a first-order row: itself).
    """
    ran = attributed.select(_NEEDED).filter(pl.col("start").is_not_null() & pl.col("end").is_not_null())
    first = ran.filter(pl.col("is_hardware")).with_columns(
        order=pl.lit(1, pl.UInt8), by_job=pl.col("job"), by_attempt=pl.col("attempt")
    )
    second = _second(ran).with_columns(order=pl.lit(2, pl.UInt8))
    hours = (pl.col("end") - pl.col("start")).dt.total_microseconds() / 3.6e9
    cost = hours.clip(0, lost_min / 60) * pl.col("gpus").fill_null(0)
    columns = ["job", "attempt", "gpus", "bucket", "order", "lost_gpu_h", "by_job", "by_attempt"]
    both = [each.with_columns(size_bucket(), lost_gpu_h=cost).select(columns) for each in (first, second)]
    return pl.concat(both)


def by_size(losses: pl.DataFrame) -> pl.DataFrame:
    """Return for each size bucket what was lost in the first and second order, in attempts and GPU hours."""
    is_first = pl.col("order") == 1
    return (
        losses.group_by("bucket")
        .agg(
            is_first.sum().alias("failures"),
            (~is_first).sum().alias("preemptions"),
            pl.col("lost_gpu_h").filter(is_first).sum().alias("first_gpu_h"),
            pl.col("lost_gpu_h").filter(~is_first).sum().alias("second_gpu_h"),
        )
        .sort("bucket")
    )


def second_share(losses: pl.DataFrame, *, level: float = 0.90) -> Share | None:
    """Return the second order's share of the loss, or None if there is no loss.

    The unit is a failure with all that it brought about, since its preemptions come together. Few failures
    bring about most of them, so the interval is one of Student's on the scale of log odds, with as many
    degrees of freedom as failures that matter: a bootstrap of so few draws the same ones, and is too narrow.
    """
    is_second = pl.col("order") == 2
    each = losses.group_by("by_job", "by_attempt").agg(
        pl.col("lost_gpu_h").filter(~is_second).sum().alias("first"),
        pl.col("lost_gpu_h").filter(is_second).sum().alias("second"),
    )
    first, second = each["first"].to_numpy(), each["second"].to_numpy()
    total = float(first.sum() + second.sum())
    if total == 0:
        return None
    value = float(second.sum() / total)
    low, high = _interval(first, second, value, level)
    return Share(value=value, low=low, high=high, failures=each.height)


# --- who was preempted for whom ----------------------------------------------------------------


def _second(ran: pl.DataFrame) -> pl.DataFrame:
    """Return the preempted attempts whose instigator had been restarted after a failure."""
    # Attempts are numbered: who follows a failed one was restarted because of it.
    failed = ran.filter("is_hardware").select("job", by_attempt="attempt", attempt=pl.col("attempt") + 1)
    starts = ran.select(_STARTS)
    victims = ran.filter(pl.col("state") == "PREEMPTED").with_row_index("_victim")
    victims = victims.with_columns(pl.col("_victim").cast(pl.UInt32))
    logged = _by_name(victims.filter(pl.col("preemptor").is_not_null()), starts)
    guessed = _by_place(victims.filter(pl.col("preemptor").is_null()), starts, failed)
    found = pl.concat([logged, guessed]).join(failed, on=["job", "attempt"])
    return victims.join(found.select("_victim", "by_attempt", by_job="job"), on="_victim").drop("_victim")


def _by_name(victims: pl.DataFrame, starts: pl.DataFrame) -> pl.DataFrame:
    """Return victim and instigator where the scheduler told the job: its first start after that."""
    named = victims.select("_victim", job="preemptor", at="end")
    theirs = starts.select("job", "attempt", "start")
    if named.is_empty():  # In most books nobody is named, and a join would look at all starts first.
        theirs = theirs.clear()
    met = named.join(theirs, on="job").filter(_follows(GRACE_S))
    first = met.sort("_victim", "start").unique("_victim", keep="first", maintain_order=True)
    return first.select("_victim", "job", "attempt")


def _by_place(victims: pl.DataFrame, starts: pl.DataFrame, failed: pl.DataFrame) -> pl.DataFrame:
    """Return victim and instigator where nobody told: the most important start on the freed nodes just after.

    First those victims are found that a restarted job follows at all, which are few; then all others who
    started there at the same time are looked at, and the most important and then the largest is blamed.
    """
    # Who follows a failure is no first attempt, and nearly all others are.
    later = starts.filter(pl.col("attempt") >= pl.lit(failed["attempt"].min(), pl.UInt32))
    restarts = later.join(failed, on=["job", "attempt"], how="semi")
    near = _close(victims.select("_victim", "node_list", at="end"), "at", _around(restarts, "start", (-1, 0)))
    freed = on_nodes(near)
    suspected = _meet(freed, on_nodes(restarts)).select("_victim").unique()
    some = freed.join(suspected, on="_victim", how="semi")
    rank = [pl.col("priority").fill_null(0), pl.col("gpus").fill_null(0)]
    rivals = _meet(some, on_nodes(_close(starts, "start", _around(some, "at", (0, 1)))))
    rivals = rivals.sort("_victim", *rank, "job", descending=[False, True, True, False])
    return rivals.unique("_victim", keep="first", maintain_order=True).select("_victim", "job", "attempt")


def _meet(freed: pl.DataFrame, starting: pl.DataFrame) -> pl.DataFrame:
    """Return who starts on a node just after it was freed."""
    pieces = [freed.select("_victim", "node", "at", _piece=_piece("at") + each) for each in (0, 1)]
    cut = pl.concat(pieces)
    met = cut.join(starting.with_columns(_piece=_piece("start")), on=["node", "_piece"])
    return met.filter(_follows(SOON_S))


def _follows(within_s: float) -> pl.Expr:
    return pl.col("start").is_between(pl.col("at"), pl.col("at") + timedelta(seconds=within_s))


def _piece(column: str) -> pl.Expr:
    return pl.col(column).dt.epoch("us") // int(SOON_S * 1e6)


def _around(rows: pl.DataFrame, column: str, pieces: tuple[int, int]) -> pl.Series:
    """Return the pieces of time, each as long as the wait, that lie around the moments of a column."""
    times = rows.select(_piece(column)).to_series().unique()
    return pl.concat([times + each for each in pieces]).unique()


def _close(rows: pl.DataFrame, column: str, pieces: pl.Series) -> pl.DataFrame:
    return rows.filter(_piece(column).is_in(pieces.implode()) & pl.col("node_list").is_not_null())


# --- the interval -------------------------------------------------------------------------------


def _interval(
    first: NDArray[np.float64], second: NDArray[np.float64], value: float, level: float
) -> tuple[float, float]:
    """Return the bounds of a share that is a ratio of two sums over failures."""
    count, tail = len(first), (1 - level) / 2
    if value == 0:  # Nothing was seen; a failure in so many may have been missed.
        return 0.0, 1 - tail ** (1 / count)
    off = second - value * (first + second)
    squares = off**2
    if value == 1 or count < 2 or squares.sum() == 0:
        return 0.0, 1.0
    matter = squares.sum() ** 2 / (squares**2).sum()
    error = np.sqrt(squares.sum() * count / (count - 1)) / (first + second).sum()
    reach = stdtrit(max(matter - 1, 1.0), 1 - tail) * error / (value * (1 - value))
    return float(expit(logit(value) - reach)), float(expit(logit(value) + reach))
