"""Lemon nodes: those that keep failing jobs, found by their history rather than by a check.

Each signal of a node is tested against the fleet's rate over the node's own exposure; the tests are combined
although they depend on each other, and the share of false alarms among the flagged nodes is held down. A node
is flagged if it is none of the fleet, or, where nodes differ much anyway, if its rate is surely several times
the fleet's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import betaincinv

from holdfast.reliability.excess import Fleet, Floats, binomial_tail, combine, false_discovery, fit_fleet

EXPOSED = {
    "incidents": "hours",
    "out_count": "hours",
    "tickets": "hours",
    "xid_cnt": "hours",
    "multi_node_node_fails": "multi_hours",
    "single_node_node_fails": "single_hours",
    "excl_jobid_count": "job_hours",
}
"""What each count is held against."""
RATE = "single_node_node_failure_rate"
WORDS = {
    "incidents": "incidents",
    "out_count": "times out of service",
    "tickets": "repair tickets",
    "xid_cnt": "kinds of XID",
    "multi_node_node_fails": "multi-node jobs failed",
    "single_node_node_fails": "single-node jobs failed",
    "excl_jobid_count": "jobs that exclude it",
}
WEIGHTS = {
    "incidents": 0.45,
    "multi_node_node_fails": 0.25,
    "single_node_node_fails": 0.08,
    "out_count": 0.05,
    "tickets": 0.05,
    "xid_cnt": 0.05,
    RATE: 0.05,
    "excl_jobid_count": 0.02,
}
"""Of the tests. Incidents are what all of the others show, and failed jobs what it is about; users exclude
nodes that have nothing."""
FALSE_SHARE = 0.10
LEAST_TIMES = 3.0
"""A node that is surely, but only a little, worse than the fleet is no lemon."""


def find_lemons(
    signals: pl.DataFrame, *, false_share: float = FALSE_SHARE, least_times: float = LEAST_TIMES
) -> pl.DataFrame:
    """Return the nodes, the worst first: score, p, q, times the fleet's rate, is_lemon, and why."""
    tails: dict[str, Floats] = {}
    expected: dict[str, Floats] = {}
    times, several = np.ones(signals.height), np.ones(signals.height)
    for name, over in EXPOSED.items():
        counts, exposure = _floats(signals, name), _floats(signals, over)
        fleet = fit_fleet(counts, exposure)
        tails[name], expected[name] = fleet.tail(counts, exposure), fleet.rate * exposure
        if name == "incidents":
            times = fleet.times(counts, exposure)
            worse = Fleet(rate=least_times * fleet.rate, known=fleet.known)
            several = false_discovery(worse.tail(counts, exposure))
    tails[RATE] = _rate_tail(signals)
    p = combine(np.stack([tails[name] for name in WEIGHTS], axis=1), np.array(list(WEIGHTS.values())))
    q = false_discovery(p)
    seen = {name: _floats(signals, name) for name in EXPOSED}
    why = [_explain(row, seen, expected, tails) for row in range(signals.height)]
    table = signals.with_columns(
        pl.Series("score", -np.log10(np.maximum(p, 1e-300))),
        pl.Series("p", p),
        pl.Series("q", q),
        pl.Series("times", times),
        pl.Series("is_lemon", ((q <= false_share) & (times >= least_times)) | (several <= false_share)),
        pl.Series("why", why, dtype=pl.String),
    )
    return table.sort("score", "times", "node", descending=[True, True, False])


def drain_lines(lemons: pl.DataFrame) -> list[str]:
    """Return the commands that would drain the flagged nodes; nobody runs them here."""
    flagged = lemons.filter("is_lemon")
    return [
        f'scontrol update NodeName={node} State=DRAIN Reason="holdfast: {why}"'
        for node, why in flagged.select("node", pl.col("why").str.replace_all(r'["\\`$\n]', " ")).iter_rows()
        if _is_name(node)
    ]


@dataclass(frozen=True)
class Later:
    """What flagged nodes did afterwards, beside the others."""

    flagged: int
    failed: int
    """Flagged nodes that failed again."""
    precision: float | None
    """Their share; None: nothing was flagged."""
    others_failed: float | None
    """Share of the other nodes that failed: what random flags would have had."""
    times: float | None
    """Rate of failures of the flagged over that of the others."""
    times_low: float
    times_high: float


def precision_later(lemons: pl.DataFrame, later: pl.DataFrame, *, level: float = 0.90) -> Later:
    """Hold flags against failures that happened after them: rows of ``later`` have a ``node``.

    The interval of the ratio is exact for Poisson counts: given their sum, the flagged nodes' is binomial.
    """
    counts = later.group_by("node").len("_later")
    each = lemons.select("node", "is_lemon").join(counts, on="node", how="left")
    each = each.with_columns(pl.col("_later").fill_null(0).cast(pl.Int64))
    ours, others = (_floats(each.filter(pl.col("is_lemon") == flag), "_later") for flag in (True, False))
    low, high = _ratio_interval(int(ours.sum()), int(others.sum()), len(ours), len(others), level)
    return Later(
        flagged=len(ours),
        failed=int((ours > 0).sum()),
        precision=float((ours > 0).mean()) if len(ours) else None,
        others_failed=float((others > 0).mean()) if len(others) else None,
        times=float(ours.mean() / others.mean()) if len(ours) and others.sum() else None,
        times_low=low,
        times_high=high,
    )


def _ratio_interval(ours: int, others: int, nodes: int, rest: int, level: float) -> tuple[float, float]:
    if nodes == 0 or rest == 0:
        return 0.0, math.inf
    tail = (1 - level) / 2
    low = float(betaincinv(ours, others + 1, tail)) if ours else 0.0
    high = float(betaincinv(ours + 1, others, 1 - tail)) if others else 1.0
    return low / (1 - low) * rest / nodes, high / (1 - high) * rest / nodes if high < 1 else math.inf


def _rate_tail(signals: pl.DataFrame) -> Floats:
    """Return the tail of the node's share of failed single-node jobs, which may share a node's failure."""
    failed, jobs = _floats(signals, "single_node_node_fails"), _floats(signals, "single_jobs")
    failed = np.minimum(failed, jobs)
    return binomial_tail(failed, jobs, failed.sum() / max(jobs.sum(), 1.0))


def _explain(
    row: int, counts: dict[str, Floats], expected: dict[str, Floats], tails: dict[str, Floats]
) -> str:
    """Say what stands out, the surest first, in numbers beside those that the fleet would have."""
    told = sorted((tails[name][row], name) for name in EXPOSED if tails[name][row] < 0.01)
    if not told:
        return "nothing stands out"
    parts = [
        f"{counts[name][row]:.0f} {WORDS[name]} ({expected[name][row]:.2g} expected)" for _, name in told
    ]
    return ", ".join(parts)


def _is_name(node: str) -> bool:
    return all(char.isalnum() or char in "-._" for char in node) and node[:1].isalnum()


def _floats(table: pl.DataFrame, column: str) -> Floats:
    return table[column].cast(pl.Float64).fill_null(0.0).to_numpy()
