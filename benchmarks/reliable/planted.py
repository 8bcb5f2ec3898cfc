"""Lemon nodes planted into a fleet: seven signals of every node, drawn at once, and how well they are found.

A node of the fleet fails 6.5 times in 1,000 node-days and kills what runs on it; a lemon does so 5 to 40
times as often. Besides, nodes have *faults* that kill nothing but are noticed (drained when their job has
ended), as often again: of a lemon either as many times more (``all``), or no more than of others (``kills``),
or nobody has any (``bare``). Signals come along by chance, and all have noise that means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from holdfast.reliability.excess import Floats
from holdfast.reliability.lemons import find_lemons

TIMES = (5, 10, 20, 40)
VARIANTS = ("all", "kills", "bare")
RECALLS = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Fleet:
    """What is planted, and how much each signal tells."""

    nodes: int = 2048
    lemons: int = 24
    times: float = 20.0
    days: float = 28.0
    rate_per_day: float = 6.5e-3
    variant: str = "all"
    fault_factor: float = 1.0
    """Faults that kill nothing, for each failure that does."""
    busy: float = 0.83
    multi_share: float = 0.91
    """Of the time that a node is busy: in jobs of several nodes."""
    seen_share: float = 0.935
    """Of failures: silent, or caught by a check."""
    xid_share: float = 0.34
    ticket_share: float = 0.3
    exclude_share: float = 0.5
    other_outs_per_day: float = 1e-3
    """Drains that have nothing to do with the node."""
    excluded: float = 0.5
    """Jobs that exclude a node for no reason."""
    single_jobs_per_day: float = 3.0


@dataclass(frozen=True)
class Drawn:
    """A fleet after four weeks."""

    signals: pl.DataFrame
    lemons: frozenset[str]
    told: dict[str, int]
    """How much of what tells lemons apart really happened to each node: a ranking by it is as good as one
    that misses nothing, and can only be beaten by luck among equals."""


def draw(fleet: Fleet, rng: np.random.Generator) -> Drawn:
    """Return the signals of every node, and the truth."""
    names = [f"n{node:04d}" for node in range(fleet.nodes)]
    planted = rng.choice(fleet.nodes, fleet.lemons, replace=False)
    times = np.ones(fleet.nodes)
    times[planted] = fleet.times
    killed = rng.poisson(fleet.rate_per_day * fleet.days * fleet.busy * times)
    faults = _faults(fleet, times, rng)
    seen = rng.binomial(killed, fleet.seen_share)
    noticed = seen + faults
    multi = rng.binomial(seen, fleet.multi_share)
    others = rng.poisson(fleet.other_outs_per_day * fleet.days, fleet.nodes)
    shown = rng.binomial(noticed, fleet.xid_share)
    hours = fleet.days * 24 - np.minimum(noticed * rng.exponential(6.0, fleet.nodes), fleet.days * 12)
    busy = hours * fleet.busy * rng.uniform(0.9, 1.1, fleet.nodes)
    jobs = rng.poisson(fleet.single_jobs_per_day * fleet.days, fleet.nodes)
    excluded = rng.poisson(fleet.excluded, fleet.nodes) + rng.binomial(killed - seen, fleet.exclude_share)
    table = {
        "node": names,
        "hours": hours,
        "job_hours": busy,
        "multi_hours": busy * fleet.multi_share,
        "single_hours": busy * (1 - fleet.multi_share),
        "single_jobs": jobs,
        "excl_jobid_count": excluded,
        "xid_cnt": np.minimum(shown, 4),  # Kinds, of which there are few.
        "tickets": rng.binomial(noticed, fleet.ticket_share),
        "out_count": noticed + others,
        "multi_node_node_fails": multi,
        "single_node_node_fails": seen - multi,
        "incidents": noticed + others,
        "single_node_node_failure_rate": (seen - multi) / np.maximum(jobs, 1),
    }
    told = killed + faults if fleet.variant == "all" else killed
    return Drawn(
        signals=pl.DataFrame(table),
        lemons=frozenset(names[node] for node in planted),
        told=dict(zip(names, told.tolist(), strict=True)),
    )


def _faults(fleet: Fleet, times: Floats, rng: np.random.Generator) -> Any:
    factor = 0.0 if fleet.variant == "bare" else fleet.fault_factor
    scale = times if fleet.variant == "all" else np.ones(fleet.nodes)
    return rng.poisson(fleet.rate_per_day * fleet.days * factor * scale)


def curve(ranked: list[str], lemons: frozenset[str]) -> dict[float, float]:
    """Return the best precision at each recall at least, over all lengths of the list."""
    hits = np.cumsum([node in lemons for node in ranked])
    precision, recall = hits / np.arange(1, len(ranked) + 1), hits / len(lemons)
    return {level: float(precision[recall >= level - 1e-9].max(initial=0.0)) for level in RECALLS}


def measure(fleet: Fleet, seeds: range) -> dict[str, Any]:
    """Return, over seeds: precision by recall, precision and recall of our own flags, false alarms."""
    drawn = [draw(fleet, np.random.default_rng(seed)) for seed in seeds]
    curves, limits, flags = [], [], []
    for each in drawn:
        found = find_lemons(each.signals)
        curves.append(curve(found["node"].to_list(), each.lemons))
        best = sorted(each.told, key=lambda node, told=each.told: (-told[node], node))  # type: ignore[misc]
        limits.append(curve(best, each.lemons)[0.8])
        flagged = found.filter("is_lemon")["node"].to_list()
        flags.append((sum(node in each.lemons for node in flagged), len(flagged)))
    hits, flagged_nodes = (sum(column) for column in zip(*flags, strict=True))
    mean = {f"precision_at_{level}": float(np.mean([each[level] for each in curves])) for level in RECALLS}
    return {"variant": fleet.variant, "times": fleet.times, **mean} | {
        "by_true_count_at_0.8": float(np.mean(limits)),
        "flag_precision": hits / flagged_nodes if flagged_nodes else None,
        "flag_recall": hits / (fleet.lemons * len(drawn)) if fleet.lemons else None,
        "false_flags": (flagged_nodes - hits) / len(drawn),
    }


def rows(seeds: range) -> list[dict[str, Any]]:
    """Return one row for each variant and factor."""
    return [
        measure(Fleet(variant=variant, times=float(times)), seeds) for variant in VARIANTS for times in TIMES
    ]
