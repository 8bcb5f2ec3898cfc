"""Tables of text into the table of attempts: the one way that every reader of jobs takes.

``convert`` works on a piece of a file and tells what is broken; ``finish`` puts the pieces together, counts
the attempts of each job, and leaves out second copies of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from holdfast.reliability import cells as read
from holdfast.reliability import gpus
from holdfast.reliability.jobkeys import is_repeated, job_keys, plain_numbers
from holdfast.reliability.tables import ATTEMPTS
from holdfast.reliability.told import Tally, shown
from holdfast.reliability.words import states

TIMES = ("submit", "eligible", "start", "end")
_WORDS = ("name", "user", "account", "partition", "qos", "preemptor", "cluster")
_LISTS = ("node_list", "exclude")
COUNTS = ("nodes", "gpus", "nodes_asked")
HINTS = ("elapsed", "tres", "tres_asked", "gres", "gres_asked", "restarts")
"""What is no column of the table, but helps to fill one."""
NAMES = ("job", "state", "priority", *TIMES, *_WORDS, *_LISTS, *COUNTS, *HINTS)
"""All columns of text that are understood."""

_NOBODY = ("None assigned", "", "(null)", "None", "none", "N/A")
"""Slurm's words for a list of no nodes."""
_MOST = 2**32 - 1
_NOT_OVER = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING")
_JOB = r"[0-9]+(?:_(?:[0-9]+|\[[^\]]*\]))?(?:\+[0-9]+)?"
"""A job of Slurm, a task of an array, the tasks of one that wait, a part of a heterogeneous job."""


def without_steps(raw: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Leave out the steps of jobs, ``123.batch`` and ``123.0``, and count them."""
    if plain_numbers(raw["job"]) is not None:
        return raw
    job = pl.col("job")
    dotted = pl.when(job.str.contains(".", literal=True)).then(job)  # The pattern is slow, and few need it.
    is_step = dotted.str.contains(rf"^\s*{_JOB}\.[^.\s]+\s*$")
    kept = raw.filter(is_step.fill_null(False).not_())
    tally.left_out += raw.height - kept.height
    return kept


def convert(raw: pl.DataFrame, zone: str, tally: Tally, *, is_slurm: bool = False) -> pl.DataFrame:
    """Return the good rows of a table of text, with all columns but ``attempt``, and tell the others."""
    missing = [name for name in NAMES if name not in raw.columns]
    table = raw.with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
    is_plain = plain_numbers(table["job"]) is not None
    if not is_plain:
        table = read.strip(table, ["job"], ("",))
    # In one call, so that columns are read side by side.
    table = table.with_columns(*states(table), *_usual_times(zone), *_usual_counts())
    table = _count(read.rest_of_times(_fill_eligible(table), TIMES, zone))
    table = _settle(table, has_node_list="node_list" not in missing)
    table = table.with_columns(_is_broken(is_slurm and not is_plain).fill_null(False).alias("_is_broken"))
    tally.tell_all(table.filter("_is_broken"), lambda row: _explain(row, is_slurm=is_slurm))
    good = table.filter(pl.col("_is_broken").not_()).with_columns(_nodes())
    return gpus.add(good).select(_columns())


def _usual_times(zone: str) -> list[pl.Expr]:
    """Read the times; nearly all jobs are eligible when they are submitted, and times are slow to read."""
    other = pl.when(_is_eligible_at_once().not_()).then("eligible").alias("eligible")
    return [
        *read.usual_times([name for name in TIMES if name != "eligible"], zone),
        read.usual_time(other, zone).alias("eligible_at"),
    ]


def _fill_eligible(table: pl.DataFrame) -> pl.DataFrame:
    at = pl.when(_is_eligible_at_once()).then("submit_at").otherwise("eligible_at")
    return table.with_columns(at.alias("eligible_at"))


def _is_eligible_at_once() -> pl.Expr:
    return (pl.col("eligible") == pl.col("submit")).fill_null(False)


def _usual_counts() -> list[pl.Expr]:
    return [
        pl.col(name).cast(pl.UInt32, strict=False).cast(pl.Int64).alias(f"{name}_read") for name in COUNTS
    ]


def _count(table: pl.DataFrame) -> pl.DataFrame:
    """Read the whole numbers; only where one could not be read are cells looked at that may say nothing."""
    if table.select(pl.any_horizontal(read.is_bad(name, f"{name}_read") for name in COUNTS).any()).item():
        careful = (read.whole(name, most=_MOST).alias(f"{name}_read") for name in COUNTS)
        return read.strip(table, COUNTS).with_columns(careful)
    return table


def _settle(table: pl.DataFrame, *, has_node_list: bool) -> pl.DataFrame:
    """Say what starts and ends mean: who waits has not started, who is over ended when it had run."""
    start, end, state = pl.col("start_at"), pl.col("end_at"), pl.col("state_read")
    is_waiting = (state == "PENDING").fill_null(False)
    if has_node_list:  # Old versions of Slurm write when a job was cancelled as its start.
        is_waiting |= (_is_one_of("node_list", _NOBODY) & (start == end)).fill_null(False)
    started = pl.when(is_waiting).then(None).otherwise(start)
    is_over = state.is_in(_NOT_OVER).not_().fill_null(True)
    table = table.with_columns(pl.when(end.is_null() & is_over).then(pl.col("elapsed")).alias("elapsed"))
    ran = pl.duration(microseconds=(read.duration_s("elapsed") * 1e6).round().cast(pl.Int64))
    ended = pl.coalesce(end, started + ran)
    return table.with_columns(started.alias("start_at"), ended.alias("end_at"), start.alias("start_told"))


def _is_one_of(name: str, words: tuple[str, ...]) -> pl.Expr:
    """Compare with each: for a few words that is faster than to look them up."""
    return pl.any_horizontal(pl.col(name) == word for word in words)


def _is_broken(has_odd_jobs: bool) -> pl.Expr:
    job = pl.col("job")
    bad = job.str.contains(rf"^{_JOB}$").not_() if has_odd_jobs else job.is_null()
    bad = bad.fill_null(True) | read.is_bad("state", "state_read")
    for name in TIMES:
        bad |= read.is_bad(name, "start_told" if name == "start" else f"{name}_at").fill_null(False)
    for name in COUNTS:
        bad |= read.is_bad(name, f"{name}_read")
    return bad | (pl.col("end_at") < pl.col("start_at")).fill_null(False)


def _explain(row: dict[str, Any], *, is_slurm: bool) -> str:
    if row["job"] is None:
        return "names no job"
    if row["state"] is not None and row["state_read"] is None:
        return f"state is {shown(row['state'])}, expected one of Slurm's"
    for name in TIMES:
        if row[name] is not None and row["start_told" if name == "start" else f"{name}_at"] is None:
            return f"{name} is {shown(row[name])}, expected a time that the time zone has"
    for name in COUNTS:
        if row[name] is not None and row[f"{name}_read"] is None:
            return f"{name} is {shown(row[name])}, expected a whole number (sacct: --noconvert)"
    if None not in (row["end_at"], row["start_at"]) and row["end_at"] < row["start_at"]:
        return f"end {shown(row['end_at'])} is before start {shown(row['start_at'])}"
    assert is_slurm
    return f"job is {shown(row['job'])}, expected a number such as 123 or 123_4"


def _nodes() -> pl.Expr:
    had = pl.when(pl.col("nodes_read") > 0).then("nodes_read")
    return pl.coalesce(had, "nodes_asked_read", "nodes_read").alias("nodes_read")


def _columns() -> list[pl.Expr]:
    return [
        *(pl.when(_is_one_of(name, _NOBODY).not_()).then(pl.col(name)).alias(name) for name in _LISTS),
        *(pl.when(_is_one_of(name, ("", "(null)")).not_()).then(pl.col(name)).alias(name) for name in _WORDS),
        pl.col("job"),
        pl.col("state_read").alias("state"),
        pl.col("priority").cast(pl.Float64, strict=False).cast(pl.Int64, strict=False).alias("priority"),
        *(pl.col(f"{name}_at").alias(name) for name in TIMES),
        pl.col("nodes_read").cast(pl.UInt32).alias("nodes"),
        pl.col("gpus_read").cast(pl.UInt32).alias("gpus"),
        # Where GPUs are counted at all, a row that counts other things and no GPUs has none.
        pl.coalesce("tres", "tres_asked").str.contains("gres/gpu", literal=True).alias("_counts_gpus"),
        read.whole("restarts", most=_MOST - 1).alias("_restarts"),
    ]


# --- all pieces together ----------------------------------------------------------------------


def finish(pieces: Iterable[pl.DataFrame], tally: Tally) -> pl.DataFrame:
    """Return the table of attempts of one source."""
    frames = list(pieces)
    if not frames:
        return pl.DataFrame(schema=dict(ATTEMPTS))
    table = pl.concat(frames)
    if table["_counts_gpus"].any():
        none = pl.when(pl.col("_counts_gpus").not_()).then(0)
        table = table.with_columns(pl.coalesce("gpus", none).cast(pl.UInt32).alias("gpus"))
    if table["cluster"].count() and table["cluster"].n_unique() > 1:  # Each cluster counts its jobs from 1.
        table = table.with_columns(
            pl.concat_str([pl.col("cluster"), pl.col("job")], separator=":", ignore_nulls=True).alias("job")
        )
    table = _number(table, tally)
    return table.select(pl.col(name).cast(dtype) for name, dtype in ATTEMPTS.items())


def _number(table: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Add ``attempt``; of rows with the same job and start keep the one that knows its end."""
    attempt = np.ones(table.height, np.uint32)
    keys = job_keys(table["job"])
    places = np.flatnonzero(is_repeated(keys)).astype(np.uint32)
    if len(places):
        again = table.select("start", "end", "submit")[places]
        again = again.with_columns(_place=places, job=keys[places])
        # Nulls first: of two copies, one without an end was written while the job ran.
        again = again.sort("job", "end", "_place", nulls_last=False)
        is_copy = pl.col("start").is_not_null() & pl.struct("job", "start").is_last_distinct().not_()
        copies = again.filter(is_copy)["_place"].to_numpy()
        kept = again.filter(is_copy.not_()).sort("job", "start", "submit", "_place", nulls_last=True)
        order = kept.with_columns(pl.int_range(1, pl.len() + 1).over("job").alias("_order"))
        attempt[order["_place"].to_numpy()] = order["_order"].to_numpy()
        attempt[copies] = 0
        tally.left_out += len(copies)
    numbered = table.with_columns(pl.Series("attempt", attempt))
    if not attempt.all():
        numbered = numbered.filter(pl.col("attempt") > 0)
    restarted = pl.max_horizontal("attempt", pl.col("_restarts") + 1)
    return numbered.with_columns(restarted.cast(pl.UInt32).alias("attempt"))
