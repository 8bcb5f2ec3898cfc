"""What health checks are worth: how many jobs that ended well saw one of them fail.

A check that fails under jobs which complete is a false alarm, or about something that jobs can live with. The
clusters of Kokolis et al. (2024) were tuned until fewer than 1 % of completed jobs saw one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from holdfast.reliability.intervals import share_interval
from holdfast.reliability.meeting import near

AFTER_MIN = 5.0
_FAILING = ("warning", "critical")


@dataclass(frozen=True)
class Audit:
    """Completed attempts, and those on whose nodes a check failed meanwhile or a little later."""

    completed: int
    touched: int
    low: float
    high: float
    """Bounds of the share, exact."""
    checks: pl.DataFrame
    """By check and severity: ``touched`` and ``share`` of the completed attempts."""

    @property
    def share(self) -> float | None:
        """None: nothing was completed."""
        return self.touched / self.completed if self.completed else None


def audit(attempts: pl.DataFrame, events: pl.DataFrame, *, after_min: float = AFTER_MIN) -> Audit:
    """Hold checks that failed against attempts that completed on the same nodes."""
    done = attempts.select("state", "start", "end", "node_list").filter(
        (pl.col("state") == "COMPLETED") & pl.col("start").is_not_null() & pl.col("end").is_not_null()
    )
    failing = events.filter(
        pl.col("kind").is_in(["check", "xid"])
        & pl.col("severity").is_in(_FAILING)
        & pl.col("at").is_not_null()
        & pl.col("node").is_not_null()
    ).select("node", "at", "name", pl.col("severity").cast(pl.String))
    spans = done.with_row_index("_row").select(
        "_row", "node_list", _from="start", _to=pl.col("end") + timedelta(minutes=after_min)
    )
    touched = _touched(spans, failing)
    counts = touched.group_by("name", "severity").agg(pl.col("_row").n_unique().alias("touched"))
    table = counts.with_columns(share=pl.col("touched") / max(1, done.height))
    low, high = share_interval(touched["_row"].n_unique(), done.height)
    return Audit(
        completed=done.height,
        touched=touched["_row"].n_unique(),
        low=float(low),
        high=float(high),
        checks=table.sort("touched", "name", "severity", descending=[True, False, False]),
    )


def _touched(spans: pl.DataFrame, failing: pl.DataFrame) -> pl.DataFrame:
    """Return which attempts saw which check fail: _row, name, severity.

    First whether any did, which holds for few; then which.
    """
    both = near(spans, failing).join(failing, on="node").filter(pl.col("at").is_between("_from", "_to"))
    return both.select("_row", "name", "severity").unique()
