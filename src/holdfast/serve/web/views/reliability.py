"""How often the machines behind all runs fail, what it means for jobs of any size, and which nodes stand out.

Every death or hang of workers is taken for one failure, whatever its cause: rather too many than too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup

from holdfast.incidents.values import RunView
from holdfast.reliability.adaptive import CAVEAT, Adaptation
from holdfast.reliability.ettr import Conditions
from holdfast.reliability.forecast import curve
from holdfast.reliability.intervals import Floats
from holdfast.reliability.lemons import find_lemons
from holdfast.reliability.lemonsignals import signals_of_outages
from holdfast.reliability.rates import Rate, make_rate
from holdfast.reliability.tables import OUTAGES
from holdfast.reliability.view import through_of
from holdfast.serve.chart import Chart, Panel, Series, draw
from holdfast.serve.store import RunRow
from holdfast.serve.web.context import Context
from holdfast.serve.web.lately import MOST_LISTED
from holdfast.serve.web.views.words import parse, say_span

LEAST_NODE_DAYS = 1.0
"""With less nothing can be said of a rate."""
LEAST_NODES = 8
"""Of fewer nobody can say which is unlike the others."""
_MOST_LEMONS = 12
_WINDOW = timedelta(days=28)
_CHECKPOINT_MIN = 60.0
_STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


class Failure(NamedTuple):
    """Workers that died or hung together."""

    host: str
    at: datetime


class Seen(NamedTuple):
    """What all runs went through."""

    runs: int
    node_days: float
    gpu_hours: float
    lost_gpu_h: float
    failures: tuple[Failure, ...]
    hosts: frozenset[str]
    gpus_per_node: int
    since: datetime | None
    until: datetime | None


def look_back(runs: Iterable[tuple[RunRow, RunView]]) -> Seen:
    """Add up runs."""
    node_days = gpu_hours = lost = 0.0
    failures: list[Failure] = []
    hosts: set[str] = set()
    widths, starts, ends = [], [], []
    for row, view in runs:
        start, end = parse(view.started_at), parse(view.ended_at or row.heard_at)
        if start is None or end is None or end <= start or not view.world_size:
            continue
        hours = (end - start).total_seconds() / 3600
        nodes = max(1, view.nodes or row.nodes)
        node_days += nodes * hours / 24
        gpu_hours += view.world_size * hours
        lost += view.bill.lost_gpu_h
        failures += _failures(view)
        hosts |= {worker.host for worker in view.workers if worker.host}
        widths.append(max(1, round(view.world_size / nodes)))
        starts.append(start)
        ends.append(end)
    return Seen(
        runs=len(starts),
        node_days=node_days,
        gpu_hours=gpu_hours,
        lost_gpu_h=lost,
        failures=tuple(failures),
        hosts=frozenset(hosts),
        gpus_per_node=round(median(widths)) if widths else 8,
        since=min(starts, default=None),
        until=max(ends, default=None),
    )


def _failures(view: RunView) -> list[Failure]:
    where = {worker.rank: worker.host for worker in view.workers}
    return [
        Failure(where.get(incident.ranks[0], "") if incident.ranks else "", at)
        for incident in view.incidents
        if incident.kind in ("death", "hang") and (at := parse(incident.opened_at)) is not None
    ]


def draw_curves(rate: Rate, gpus_per_node: int) -> Markup:
    """Return how often jobs of any size fail, and how much of their time they get on, with intervals."""
    assert rate.per_1000_node_days
    # Whole nodes: a part of one fails as often as all of it.
    sizes = gpus_per_node * np.unique(np.geomspace(1, 16_384, 60).round())
    middle, worst, best = (
        Conditions(nodes=1, rate_per_1000_node_days=max(value, 1e-9), checkpoint_min=_CHECKPOINT_MIN)
        for value in (rate.per_1000_node_days, rate.high, rate.low)
    )
    found, low, high = (curve(each, sizes, gpus_per_node) for each in (middle, worst, best))
    through = through_of(middle, sizes, gpus_per_node, Adaptation())
    chart = Chart(
        title="The larger the job, the sooner it fails, and the less it gets on",
        subtitle=(f"hourly checkpoints, {middle.restart_min:g} min to restart; dashed: 90 % interval",),
        x_label="GPUs",
        is_log=True,
        panels=(
            Panel(
                y_label="ETTR: share of a run's time in which it gets on",
                series=(
                    _line("restarting", sizes, found.exact, is_main=True),
                    _line("through failures", sizes, through),
                    _line("at best", sizes, high.exact, is_reference=True),
                    _line("at worst", sizes, low.exact, is_reference=True),
                ),
                height=260,
            ),
            Panel(
                y_label="MTTF: hours to a failure",
                series=(
                    _line("time to failure", sizes, found.mttf_hours, is_main=True),
                    _line("at best", sizes, high.mttf_hours, is_reference=True),
                    _line("at worst", sizes, low.mttf_hours, is_reference=True),
                ),
                height=180,
                is_log=True,
            ),
        ),
    )
    return Markup(_STYLE.sub("", draw(chart)))


def _line(name: str, xs: Floats, ys: Floats, *, is_main: bool = False, is_reference: bool = False) -> Series:
    points = tuple((float(x), float(y)) for x, y in zip(xs, ys, strict=True) if np.isfinite(y))
    return Series(name=name, points=points, is_main=is_main, is_reference=is_reference, colour=1)


def find_bad_nodes(seen: Seen) -> list[dict[str, Any]]:
    """Return the worst nodes first; none where there are too few to compare, or nothing failed."""
    known = [each for each in seen.failures if each.host]
    if len(seen.hosts) < LEAST_NODES or not known or seen.until is None:
        return []
    rows = {
        "system": ["runs"] * len(known),
        "node": [each.host for each in known],
        "at": [each.at for each in known],
        "system_nodes": [len(seen.hosts)] * len(known),
    }
    table = pl.DataFrame({name: rows.get(name, [None] * len(known)) for name in OUTAGES}, schema=OUTAGES)
    until = seen.until + timedelta(seconds=1)
    signals = signals_of_outages(table, until - _WINDOW, until)
    found = find_lemons(
        signals.filter(~pl.col("node").str.starts_with("unseen ") | (pl.col("incidents") == 0))
    )
    listed: list[dict[str, Any]] = found.head(_MOST_LEMONS).filter(pl.col("incidents") > 0).to_dicts()
    return listed


def reliability_values(context: Context, now: datetime) -> dict[str, Any]:
    """Return what the page shows; blocks."""
    rows = context.store.runs(limit=MOST_LISTED)
    seen = look_back((row, look.view) for row, look in context.lately.look(rows))
    rate = make_rate(len(seen.failures), seen.node_days)
    is_enough = seen.node_days >= LEAST_NODE_DAYS
    return {
        "seen": seen,
        "rate": rate,
        "is_enough": is_enough,
        "curves": draw_curves(rate, seen.gpus_per_node) if is_enough and rate.failures else Markup(""),
        "figures": _figures(seen, rate) if is_enough else [],
        "lemons": find_bad_nodes(seen) if is_enough else [],
        "least_nodes": LEAST_NODES,
        "least_node_days": LEAST_NODE_DAYS,
        "caveat": CAVEAT,
        "now": now,
    }


def _figures(seen: Seen, rate: Rate) -> list[tuple[str, str, str]]:
    told = rate.per_1000_node_days or 0.0
    said = "per 1,000 node-days" if rate.failures else "per 1,000 node-days: none was seen"
    figures = [
        ("failures", f"{rate.failures:,}", f"in {seen.node_days:,.1f} node-days of {seen.runs:,} runs"),
        ("failure rate", _say(told), f"{said}; 90 % interval {_say(rate.low)} to {_say(rate.high)}"),
    ]
    if rate.failures:
        typical_s = 86_400 * seen.node_days / rate.failures
        figures.append(("time to failure of one node", say_span(typical_s), "mean, by that rate"))
    if seen.gpu_hours > 0:
        share = max(0.0, 1 - seen.lost_gpu_h / seen.gpu_hours)
        figures.append(("ETTR so far", f"{share:.3f}", "without work done again since the last checkpoint"))
    return figures


def _say(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
