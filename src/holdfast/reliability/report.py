"""All that a cluster's records say, as one value: what a page shows and ``--json`` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import polars as pl

from holdfast.reliability import goodput, jobruns, status
from holdfast.reliability.attemptrates import (
    OVER_GPUS,
    AttemptRates,
    measured,
    rates_of_attempts,
)
from holdfast.reliability.attribution import attribute, cause_mix, chance, co_occurrence
from holdfast.reliability.checkaudit import audit
from holdfast.reliability.jobkeys import count_jobs, job_keys
from holdfast.reliability.lemons import drain_lines, find_lemons
from holdfast.reliability.lemonsignals import signals
from holdfast.reliability.outagerates import OutageRates, rates_of_outages
from holdfast.reliability.overtime import Exposure, OverTime, rate_over_time
from holdfast.reliability.rates import GPUS_PER_NODE
from holdfast.reliability.tables import ATTEMPTS, EVENTS, OUTAGES, Broken, Reading
from holdfast.reliability.told import Apply
from holdfast.reliability.view import Expected, expect

MOST_LEMONS = 50
MOST_PAIRS = 20
_LEAST_NODES = 8
"""Of fewer nodes nobody can say which is unlike the others."""
Row = dict[str, Any]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and how much of it could be read."""

    place: str
    table: str
    rows: int
    broken: int
    left_out: int
    told: list[Broken]


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """What broke, and how far the window can be trusted."""

    causes: list[Row]
    together: list[Row]
    failed: int
    """FAILED attempts, which only a match tells apart from those of their program."""
    matched: int
    matched_by_chance: float


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """GPU time that failures cost: redone work, directly and by preemptions."""

    sizes: list[Row]
    first_gpu_hours: float
    second_gpu_hours: float
    second_share: float | None
    second_low: float | None
    second_high: float | None


class Lemons(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that keep failing jobs."""

    nodes: int
    flagged: int
    worst: list[Row]
    """Flagged or not, the worst first."""
    drain: list[str]
    """Commands for Slurm; nobody runs them."""


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """Health checks that failed under attempts which ended well."""

    completed: int
    touched: int
    low: float
    high: float
    checks: list[Row]


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of jobs say, with the events beside them."""

    since: datetime | None
    until: datetime | None
    attempts: int
    jobs: int
    gpu_hours: float
    statuses: list[Row]
    sizes: list[Row]
    hardware: Row | None
    """What share of attempts and of GPU time the cluster's own failures touch."""
    rates: AttemptRates
    expected: Expected | None
    """Of larger jobs, by that rate."""
    over_time: OverTime | None
    attribution: Attribution
    ettr: list[Row]
    """Measured, by size of job."""
    lost: Lost
    lemons: Lemons | None
    checks: Checks | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything; None where the sources have nothing of the kind."""

    sources: list[Source]
    jobs: Jobs | None
    outages: OutageRates | None


class Books:
    """The tables of all sources, put together."""

    def __init__(self, readings: Sequence[tuple[str, str, Reading]]) -> None:
        self.sources = [
            Source(
                place=place,
                table=table,
                rows=reading.rows,
                broken=reading.broken,
                left_out=reading.left_out,
                told=list(reading.told),
            )
            for place, table, reading in readings
        ]
        schemas = {"attempts": ATTEMPTS, "events": EVENTS, "outages": OUTAGES}
        joined = {
            name: pl.concat(
                [pl.DataFrame(schema=schema), *(r.table for _, kind, r in readings if kind == name)]
            )
            for name, schema in schemas.items()
        }
        self.attempts, self.events, self.outages = (joined[name] for name in schemas)


def build(
    books: Books, *, over_gpus: int = OVER_GPUS, gpus_per_node: int = GPUS_PER_NODE, apply: Apply = map
) -> Report:
    """Return the report over all sources; the failure rate is that of jobs with more GPUs than so many."""
    return Report(
        sources=books.sources,
        jobs=_jobs(books, over_gpus, gpus_per_node, apply) if books.attempts.height else None,
        outages=rates_of_outages(books.outages) if books.outages.height else None,
    )


def _jobs(books: Books, over_gpus: int, gpus_per_node: int, apply: Apply) -> Jobs:
    # Lists of nodes come again and again: as numbers they are compared and looked up faster.
    attempts, events = books.attempts.with_columns(pl.col("node_list").cast(pl.Categorical)), books.events
    until = _latest(attempts)
    attributed = attribute(attempts, events)
    ran = measured(attributed, gpus_per_node)
    rates = rates_of_attempts(attributed, over_gpus=over_gpus, gpus_per_node=gpus_per_node, ran=ran)
    # None of these needs another: with a second core they are done side by side, the longest first.
    parts: dict[str, Callable[[], Any]] = {
        "attribution": lambda: _attribution(attempts, events, attributed),
        "checks": lambda: _checks(attempts, events) if events.height else None,
        "lemons": lambda: _lemons(attributed, events, until) if until is not None else None,
        "jobs": lambda: count_jobs(job_keys(attempts["job"])),
        "ettr": lambda: jobruns.by_size(jobruns.job_runs(attempts)).to_dicts(),
        "lost": lambda: _lost(attributed),
        "statuses": lambda: status.status_mix(attempts, until).to_dicts(),
        "sizes": lambda: status.size_mix(attempts, until).to_dicts(),
        "hardware": lambda: next(iter(status.hardware_share(attributed, until).to_dicts()), None),
        "over_time": lambda: _over_time(ran, over_gpus),
        "gpu_hours": lambda: float(attempts.select(status.gpu_hours(until).sum()).item()),
    }
    return Jobs(
        since=attempts["start"].min(),  # type: ignore[arg-type]
        until=until,
        attempts=attempts.height,
        rates=rates,
        expected=expect(rates.rate, gpus_per_node),
        **dict(zip(parts, apply(lambda part: part(), parts.values()), strict=True)),
    )


def _latest(attempts: pl.DataFrame) -> datetime | None:
    """Return when the records end: the last thing that is known to have happened."""
    times = [attempts[name].max() for name in ("submit", "start", "end")]
    return max((each for each in times if isinstance(each, datetime)), default=None)


def _over_time(ran: pl.DataFrame, over_gpus: int) -> OverTime | None:
    large = ran.filter((pl.col("gpus") > over_gpus) & (pl.col("days") > 0))
    if large.height == 0:
        return None
    starts, ends = (large[name].dt.epoch("us").to_numpy() / 1e6 for name in ("start", "end"))
    failures = large.filter("is_failure")["end"].dt.epoch("us").to_numpy() / 1e6
    return rate_over_time(failures, Exposure(starts, ends, large["nodes"].to_numpy().astype(np.float64)))


def _attribution(attempts: pl.DataFrame, events: pl.DataFrame, attributed: pl.DataFrame) -> Attribution:
    by_chance = chance(attempts, events)
    return Attribution(
        causes=cause_mix(attributed).to_dicts(),
        together=co_occurrence(attributed).head(MOST_PAIRS).to_dicts(),
        failed=by_chance.failed,
        matched=by_chance.matched,
        matched_by_chance=by_chance.by_chance,
    )


def _lost(attributed: pl.DataFrame) -> Lost:
    losses = goodput.lost(attributed)
    share = goodput.second_share(losses)
    sizes = goodput.by_size(losses)
    return Lost(
        sizes=sizes.to_dicts(),
        first_gpu_hours=float(sizes["first_gpu_h"].sum()),
        second_gpu_hours=float(sizes["second_gpu_h"].sum()),
        second_share=share.value if share else None,
        second_low=share.low if share else None,
        second_high=share.high if share else None,
    )


def _lemons(attributed: pl.DataFrame, events: pl.DataFrame, until: datetime) -> Lemons | None:
    table = signals(attributed, events, until)
    if table.height < _LEAST_NODES:
        return None
    found = find_lemons(table)
    return Lemons(
        nodes=found.height,
        flagged=int(found["is_lemon"].sum()),
        worst=found.head(MOST_LEMONS).to_dicts(),
        drain=drain_lines(found),
    )


def _checks(attempts: pl.DataFrame, events: pl.DataFrame) -> Checks:
    found = audit(attempts, events)
    return Checks(
        completed=found.completed,
        touched=found.touched,
        low=found.low,
        high=found.high,
        checks=found.checks.to_dicts(),
    )
