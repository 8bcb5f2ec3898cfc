"""Ids of jobs as whole numbers: equal where the ids are, and far faster to compare and count than text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Keys = npt.NDArray[np.uint64]


def job_keys(job: pl.Series) -> Keys:
    """Return one number for each row, the same for the same id: where all ids are numbers, just these."""
    numbers = plain_numbers(job)
    if numbers is not None:
        return numbers.to_numpy()
    codes = job.cast(pl.Categorical).to_physical().cast(pl.UInt64)
    return codes.fill_null(np.iinfo(np.uint64).max).to_numpy()


def plain_numbers(job: pl.Series) -> pl.Series | None:
    """Return the ids as numbers if all are whole ones without a zero or a sign in front, and else None.

    No two such texts are the same number.
    """
    begins_well = pl.col(job.name).is_between(pl.lit("1"), pl.lit(":"), closed="left").all(ignore_nulls=False)
    if not job.to_frame().select(begins_well).item():
        return None
    numbers = job.cast(pl.UInt64, strict=False)
    return None if numbers.null_count() else numbers


def count_jobs(keys: Keys) -> int:
    """Return how many jobs there are."""
    return len(keys) - int(_repeats(np.sort(keys)).sum())


def is_repeated(keys: Keys) -> npt.NDArray[np.bool_]:
    """Say which rows are of a job that has several."""
    if not len(keys):
        return np.zeros(0, np.bool_)
    ordered = keys if _is_sorted(keys) else np.sort(keys)
    again = _repeats(ordered)
    if ordered is keys:  # As schedulers write them: then only neighbours need to be compared.
        return np.append(again, False) | np.insert(again, 0, False)
    return pl.Series(keys).is_in(pl.Series(np.unique(ordered[1:][again])).implode()).to_numpy()


def sum_by_job(keys: Keys, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each row the sum over all rows of its job."""
    if _is_sorted(keys):
        return _sum_runs(keys, values)
    order = np.argsort(keys, kind="stable")
    sums = np.empty_like(values)
    sums[order] = _sum_runs(keys[order], values[order])
    return sums


def _sum_runs(ordered: Keys, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if not len(ordered):
        return values
    firsts = np.flatnonzero(np.insert(~_repeats(ordered), 0, True))
    lengths = np.diff(np.append(firsts, len(ordered)))
    return np.repeat(np.add.reduceat(values, firsts), lengths)


def _is_sorted(keys: Keys) -> bool:
    return bool((keys[1:] >= keys[:-1]).all())


def _repeats(ordered: Keys) -> npt.NDArray[np.bool_]:
    """Say which are the same as the one before, from the second on."""
    same: npt.NDArray[np.bool_] = ordered[1:] == ordered[:-1]
    return same
