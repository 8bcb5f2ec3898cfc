"""Says of failed attempts what broke under them, by what was noticed on their nodes around their end.

An attempt that ended FAILED or NODE_FAIL is attributed to what critical checks saw on one of its nodes from
ten minutes before its end (but not before its start) until five minutes after. NODE_FAIL is the cluster's
fault whatever they saw. This is correlation: ``chance`` says how often the window matches by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl

from holdfast.reliability import taxonomy
from holdfast.reliability.meeting import near
from holdfast.reliability.nodesets import NodeSets

FAILED = ("FAILED", "NODE_FAIL")


@dataclass(frozen=True)
class Window:
    """When something has to be noticed to explain the end of an attempt."""

    before_min: float = 10.0
    after_min: float = 5.0

    @property
    def width_us(self) -> int:
        return max(1, int((self.before_min + self.after_min) * 60e6))


PAPER = Window()


@dataclass(frozen=True)
class Chance:
    """What the window is worth: matches as they are, and with the events moved by a day."""

    failed: int
    """Attempts that ended FAILED: those of which only a match says that it was not the program."""
    matched: int
    by_chance: float
    """Matches after a shift, the mean of both directions."""

    @property
    def rate(self) -> float:
        """Share of FAILED attempts that match by accident."""
        return self.by_chance / self.failed if self.failed else 0.0

    @property
    def true_share(self) -> float | None:
        """Share of the matches that are more than accident; None without matches."""
        return max(0.0, 1 - self.by_chance / self.matched) if self.matched else None


def attribute(attempts: pl.DataFrame, events: pl.DataFrame, window: Window = PAPER) -> pl.DataFrame:
    """Return the attempts with ``cause``, ``causes``, ``culprits`` (nodes) and ``is_hardware`` added.

    ``cause`` is null for attempts that did not fail. ``is_hardware`` says that the cluster is at fault, not
    the program: hardware or its software.
    """
    seen = taxonomy.symptoms(events)
    failed = attempts.select("state", "start", "end", "node_list").with_row_index("_row")
    found = _summarise(_match(_windows(failed, window), seen, window))
    state = pl.col("state")
    unexplained = (
        pl.when(state == "NODE_FAIL")
        .then(pl.lit(taxonomy.UNATTRIBUTED))
        .when(state == "FAILED")
        .then(pl.lit(taxonomy.USER))
    )
    for word, cause in taxonomy.STATE_ROWS.items():
        unexplained = unexplained.when(state == word).then(pl.lit(cause))
    return attempts.with_columns(_spread(_tell(attempts, found), attempts.height)).with_columns(
        cause=pl.coalesce("cause", unexplained),
        is_hardware=(state == "NODE_FAIL") | ((state == "FAILED") & pl.col("is_hardware")),
    )


def _tell(attempts: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return what is to be said of some attempts, by ``_row``, and of all others, in a last row."""
    # A node that went silent under an attempt of its own needs no witness.
    is_alone = (pl.col("state") == "NODE_FAIL") & (pl.col("nodes") == 1) & pl.col("node_list").is_not_null()
    alone = attempts.select("state", "nodes", "node_list").with_row_index("_row").filter(is_alone)
    itself = alone.select("_row", itself=pl.concat_list(pl.col("node_list").cast(pl.String)))
    told = found.join(itself, on="_row", how="full", coalesce=True)
    others = pl.DataFrame({"_row": [None]}, schema={"_row": pl.UInt32})
    blaming = [row.name for row in taxonomy.ROWS if row.blames_node]
    return pl.concat([told, others], how="diagonal").select(
        "_row",
        causes=pl.col("causes").fill_null([]),
        culprits=pl.coalesce("culprits", "itself").fill_null([]),
        cause=pl.col("causes").list.first(),
        is_hardware=pl.col("causes").list.eval(pl.element().is_in(blaming)).list.any().fill_null(False),
    )


def _spread(told: pl.DataFrame, height: int) -> pl.DataFrame:
    """Return what is said of each attempt: few have failed, and a join would look all of them up."""
    rows = told["_row"][:-1].to_numpy()
    which = np.full(height, len(rows), np.uint32)
    which[rows] = np.arange(len(rows), dtype=np.uint32)
    return told.drop("_row").rechunk()[pl.Series(which)]  # From several chunks it is slow to gather.


def chance(
    attempts: pl.DataFrame, events: pl.DataFrame, window: Window = PAPER, *, shift_h: float = 24.0
) -> Chance:
    """Count how many FAILED attempts match events as they were, and a day earlier or later."""
    failed = attempts.select("state", "start", "end", "node_list").filter(pl.col("state") == "FAILED")
    seen = taxonomy.symptoms(events).filter(pl.col("row").is_not_null())
    watched = _windows(failed.with_row_index("_row"), window)
    counts = []
    for hours in (0.0, shift_h, -shift_h):
        moved = seen.with_columns(pl.col("at") + timedelta(hours=hours))
        counts.append(_match(watched, moved, window)["_row"].n_unique())
    return Chance(failed=failed.height, matched=counts[0], by_chance=(counts[1] + counts[2]) / 2)


def co_occurrence(attributed: pl.DataFrame) -> pl.DataFrame:
    """Return, for each two causes: attempts with the first, with both, and the share of those."""
    some = attributed.select("causes").with_row_index("_row").filter(pl.col("causes").list.len() > 0)
    each = some.explode("causes").drop_nulls()
    totals = each.group_by("causes").len("attempts")
    pairs = each.join(each, on="_row", suffix="_too").filter(pl.col("causes") != pl.col("causes_too"))
    both = pairs.group_by("causes", "causes_too").len("both")
    table = both.join(totals, on="causes").with_columns(share=pl.col("both") / pl.col("attempts"))
    table = table.select(
        pl.col("causes").alias("cause"), pl.col("causes_too").alias("too"), "attempts", "both", "share"
    )
    return table.sort("both", "cause", "too", descending=[True, False, False])


def cause_mix(attributed: pl.DataFrame) -> pl.DataFrame:
    """Return how many failed attempts each cause explains, most first, and their GPU hours."""
    hours = (pl.col("end") - pl.col("start")).dt.total_seconds() / 3600 * pl.col("gpus")
    few = attributed.select("state", "start", "end", "gpus", "cause", "is_hardware")
    failed = few.filter(pl.col("state").is_in(FAILED))
    table = failed.group_by("cause").agg(
        pl.len().alias("attempts"),
        pl.col("is_hardware").sum().alias("hardware"),
        hours.sum().alias("gpu_hours"),
    )
    table = table.with_columns(share=pl.col("attempts") / pl.col("attempts").sum())
    return table.sort("attempts", "cause", descending=[True, False])


def on_nodes(attempts: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts with one row for each of their nodes, in a column ``node``."""
    placed = attempts.filter(pl.col("node_list").is_not_null())
    lists = NodeSets(placed["node_list"])
    row, name = lists.nodes(0, placed.height)
    return placed[row].with_columns(lists.names[name])


def _windows(numbered: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return when the nodes of each failed attempt were watched: _row, node_list, _from, _to."""
    failed = numbered.filter(
        pl.col("state").is_in(FAILED) & pl.col("end").is_not_null() & pl.col("node_list").is_not_null()
    )
    earliest = pl.max_horizontal(pl.col("end") - timedelta(minutes=window.before_min), pl.col("start"))
    latest = pl.col("end") + timedelta(minutes=window.after_min)
    return failed.select("_row", "node_list", _from=earliest, _to=latest)


def _match(watched: pl.DataFrame, seen: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return which symptoms lie in which windows: _row, node, row, order.

    Time is cut into pieces as long as the window, so that each window touches two of them: attempts and
    events meet by node and piece, and no node's whole history is ever compared with itself.
    """
    each = near(watched, seen).drop("node_list")
    piece = pl.col("_to").dt.epoch("us") // window.width_us
    both = pl.concat([each.with_columns(_piece=piece), each.with_columns(_piece=piece - 1)])
    cut = seen.with_columns(_piece=pl.col("at").dt.epoch("us") // window.width_us)
    met = both.join(cut, on=["node", "_piece"])
    return met.filter(pl.col("at").is_between("_from", "_to")).select("_row", "node", "row", "order")


def _summarise(matches: pl.DataFrame) -> pl.DataFrame:
    """Return for each attempt the causes by severity, and the nodes that show the most severe of them."""
    ordered = matches.unique(maintain_order=True).sort("_row", "order", "node")
    worst = pl.col("order") == pl.col("order").min()
    return ordered.group_by("_row", maintain_order=True).agg(
        pl.col("row").drop_nulls().unique(maintain_order=True).alias("causes"),
        pl.col("node").filter(worst).unique(maintain_order=True).alias("culprits"),
    )
