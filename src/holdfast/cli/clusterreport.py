"""``holdfast reliability report`` and ``lemons``: what a cluster's records say, as a page, words or JSON."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.cli.files import check_chart, write_chart
from holdfast.cli.outlook import say
from holdfast.cli.quantities import parse_count
from holdfast.errors import InputError
from holdfast.reliability.report import Books, Jobs, Lemons, Report, build
from holdfast.reliability.sources import read_any
from holdfast.serve.reliabilitypage import draw_page

_SHOWN = 20
_AHEAD = 3
"""Pieces of a file that are worked on at a time."""
_Item = TypeVar("_Item")
_Out = TypeVar("_Out")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed, before anything is checked."""

    paths: Sequence[Path]
    timezone: str = "UTC"
    over_gpus: str = "128"
    gpus_per_node: str = "8"


def make_report(request: Request) -> Report:
    """Read all files, those of folders as well, and put them together."""
    over = parse_count(request.over_gpus, "--over-gpus", least=0, most=10**9)
    per_node = parse_count(request.gpus_per_node, "--gpus-per-node", least=1, most=1024)
    readings = []
    for path in _files(request.paths):
        table, reading = read_any(path, timezone=request.timezone, apply=ahead)
        readings.append((str(path), table, reading))
    report = build(Books(readings), over_gpus=over, gpus_per_node=per_node, apply=ahead)
    if report.jobs is None and report.outages is None:
        told = [f"{each.place}: {each.why}" for source in report.sources for each in source.told]
        why = f"; not readable: {told[0]}" if told else ""
        raise InputError(f"{request.paths[0]}: no attempt of a job and no failure record in it{why}")
    return report


def ahead(function: Callable[[_Item], _Out], items: Iterable[_Item]) -> Iterator[_Out]:
    """Call a function with items in threads, a few ahead of who takes what comes out, in order.

    Polars lets other threads run while it works; more than a few pieces ahead would only take memory.
    """
    waiting: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(_AHEAD) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    if not found:
        raise InputError(f"{paths[0]}: an empty folder, expected files of records")
    return found


def print_report(request: Request, out: Path | None, *, as_json: bool) -> None:
    """Write the page where one is asked for, and say the main figures."""
    if out is not None:
        check_chart(out, "--out", (".html",))
    report = make_report(request)
    if out is not None:
        write_chart(out, draw_page(report), "--out")
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if report.jobs is not None:
        _say_jobs(console, report.jobs)
    if report.outages is not None:
        rate = report.outages.whole.rate
        say(
            console,
            f"failure records: {rate.failures} failures, {rate.per_1000_node_days:.2f} per 1000 node-days",
        )
    for source in report.sources:
        say(console, f"{source.place}: {source.rows} rows of {source.table}, {source.broken} not readable")
    if out is not None:
        say(console, f"page: {out}")


def _say_jobs(console: Console, jobs: Jobs) -> None:
    say(console, f"{jobs.attempts:,} attempts of {jobs.jobs:,} jobs, {jobs.gpu_hours:,.0f} GPU hours")
    for row in jobs.statuses:
        shares = f"{row['share']:.1%} of attempts, {row['gpu_share']:.1%} of GPU time"
        say(console, f"  {row['state']}: {shares}")
    rate = jobs.rates.rate
    if rate.per_1000_node_days is not None:
        bounds = f"90% interval {rate.low:.2f} to {rate.high:.2f}"
        say(console, f"failure rate: {rate.per_1000_node_days:.2f} per 1000 node-days ({bounds})")
    lost = jobs.lost.first_gpu_hours + jobs.lost.second_gpu_hours
    say(console, f"lost to failures: {lost:,.0f} GPU hours")
    if jobs.lemons is not None:
        say(console, f"lemon nodes: {jobs.lemons.flagged} of {jobs.lemons.nodes}")


def print_lemons(request: Request, *, is_drain: bool, as_json: bool) -> None:
    """Show the nodes that keep failing jobs, or the commands that would drain them."""
    report = make_report(request)
    lemons = report.jobs.lemons if report.jobs is not None else None
    if lemons is None:
        raise InputError(f"{request.paths[0]}: too few nodes with jobs on them, expected at least 8")
    if as_json:
        sys.stdout.write(msgspec.json.encode(lemons).decode() + "\n")
    elif is_drain:
        sys.stdout.write("".join(f"{line}\n" for line in lemons.drain))
    else:
        _show_lemons(lemons)


def _show_lemons(lemons: Lemons) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(box=None, pad_edge=False)
    for name in ("node", "", "times the fleet", "q", "why"):
        table.add_column(name, justify="right" if name in ("times the fleet", "q") else "left")
    for row in lemons.worst[:_SHOWN]:
        mark = "lemon" if row["is_lemon"] else ""
        table.add_row(row["node"], mark, f"{row['times']:.1f}", f"{row['q']:.2g}", row["why"])
    console.print(table)
    say(
        console,
        f"{lemons.flagged} of {lemons.nodes} nodes flagged; --drain prints commands for Slurm, and runs none",
    )
