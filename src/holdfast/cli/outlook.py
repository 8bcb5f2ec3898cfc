"""``holdfast reliability ettr``: words from the command line in, what to expect of a job out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from holdfast.cli.files import check_chart, write_chart
from holdfast.cli.quantities import parse_count, parse_positive, show_duration, to_number
from holdfast.errors import InputError
from holdfast.reliability.adaptive import Adaptation
from holdfast.reliability.ettr import Conditions, best_interval_min, nodes_of
from holdfast.reliability.forecast import Needed
from holdfast.reliability.outlook import Outlook, look_ahead
from holdfast.reliability.view import look_around
from holdfast.serve.outlookpage import draw_outlook

_MOST_MIN = 1e6
_MOST_GPUS = 100_000_000


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed, before anything is checked."""

    gpus: str
    rate: str
    gpus_per_node: str = "8"
    checkpoint_min: str = "60"
    restart_min: str = "5"
    write_min: str = "0"
    queue_min: str = "0"
    rate_low: str | None = None
    rate_high: str | None = None
    target: str = "0.9"
    pause_s: str | None = None
    slope: str | None = None
    repair_hours: str | None = None
    stages: str | None = None
    tolerated: str | None = None
    seed: str = "0"


def print_outlook(request: Request, chart: Path | None = None, *, as_json: bool) -> None:
    """Look ahead and show what is to be expected; draw it where a chart is asked for."""
    if chart is not None:
        check_chart(chart, endings=(".html",))
    gpus = parse_count(request.gpus, "--gpus", least=1, most=_MOST_GPUS)
    per_node = parse_count(request.gpus_per_node, "--gpus-per-node", least=1, most=1024)
    outlook = look_ahead(
        gather(request, int(nodes_of(gpus, per_node))),
        np.random.default_rng(parse_count(request.seed, "--seed", least=0, most=2**31)),
        target=_parse_target(request.target),
        adaptation=_gather_adaptation(request),
        rate_interval=_parse_interval(request),
    )
    if chart is not None:
        view = look_around(outlook.conditions, gpus, per_node, outlook.adaptive.assumed)
        write_chart(chart, draw_outlook(outlook, view))
    if as_json:
        sys.stdout.write(to_json(outlook, gpus, per_node) + "\n")
    else:
        _print(outlook, gpus, per_node)


def gather(request: Request, nodes: int) -> Conditions:
    """Return the conditions of the job, each flag checked."""
    free = {
        name: parse_least(getattr(request, name), f"--{name.replace('_', '-')}", most=_MOST_MIN)
        for name in ("restart_min", "write_min", "queue_min")
    }
    is_best = request.checkpoint_min.strip() == "best"
    interval = 60.0
    if not is_best:
        interval = parse_positive(request.checkpoint_min, "--checkpoint-min", least=1e-6, most=_MOST_MIN)
    given = Conditions(
        nodes=nodes,
        rate_per_1000_node_days=parse_positive(request.rate, "--rate", most=1e6),
        checkpoint_min=interval,
        **free,
    )
    if not is_best:
        return given
    best = best_interval_min(given)
    if best is None:
        raise InputError("--checkpoint-min is 'best', expected a number: with --write-min 0 there is no best")
    return msgspec.structs.replace(given, checkpoint_min=best)


def parse_least(text: str, flag: str, *, least: float = 0.0, most: float = 1e9) -> float:
    """Return a number between two others, 0 included."""
    number = to_number(text)
    if not least <= number <= most:
        raise InputError(f"{flag} is {text!r}, expected a number from {least:g} to {most:g}")
    return number


def _parse_target(text: str) -> float:
    target = to_number(text)
    if not 0 < target < 1:
        raise InputError(f"--target is {text!r}, expected a number between 0 and 1")
    return target


def _parse_interval(request: Request) -> tuple[float, float] | None:
    if request.rate_low is None and request.rate_high is None:
        return None
    if request.rate_low is None or request.rate_high is None:
        raise InputError("expected --rate-low and --rate-high together")
    low = parse_positive(request.rate_low, "--rate-low", most=1e6)
    high = parse_positive(request.rate_high, "--rate-high", most=1e6)
    if not low <= to_number(request.rate) <= high:
        raise InputError(f"--rate is {request.rate!r}, expected it from {low:g} to {high:g}")
    return low, high


def _gather_adaptation(request: Request) -> Adaptation:
    typed: dict[str, Any] = {}
    for name, most in (("pause_s", 1e6), ("slope", 1e6), ("repair_hours", 1e6)):
        if (text := getattr(request, name)) is not None:
            typed[name] = parse_least(text, f"--{name.replace('_', '-')}", most=most)
    for name, least in (("stages", 1), ("tolerated", 0)):
        if (text := getattr(request, name)) is not None:
            typed[name] = parse_count(text, f"--{name}", least=least, most=100_000)
    return Adaptation(**typed)


def to_json(outlook: Outlook, gpus: int, gpus_per_node: int) -> str:
    """Return the outlook as one document."""
    document = {"gpus": gpus, "gpus_per_node": gpus_per_node, **msgspec.to_builtins(outlook)}
    return msgspec.json.encode(document).decode()


def _print(outlook: Outlook, gpus: int, gpus_per_node: int) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    for line in (*_first_lines(outlook, gpus, gpus_per_node), ""):
        say(console, line)
    console.print(_ettr_table(outlook))
    for line in _notes(outlook):
        say(console, line)
    console.print(_needed_table(outlook.needed, outlook.conditions))


def _first_lines(outlook: Outlook, gpus: int, gpus_per_node: int) -> list[str]:
    conditions = outlook.conditions
    rate = f"{conditions.rate_per_1000_node_days:g} failures per 1000 node-days"
    often = show_duration(3600 * outlook.mttf_hours)
    lines = [
        f"{gpus} GPUs on {conditions.nodes} nodes of {gpus_per_node}, {rate}: a failure every {often}",
        f"checkpoint every {conditions.checkpoint_min:.4g} min of work, which stops for "
        f"{conditions.write_min:g} min; restart {conditions.restart_min:g} min; "
        f"queue {conditions.queue_min:g} min",
    ]
    if outlook.best_interval_min is not None and outlook.ettr_at_best is not None:
        best = f"{outlook.best_interval_exact_min:.3g} min (Daly-Young: {outlook.best_interval_min:.3g} min)"
        lines.append(f"best interval: {best}, then ETTR {outlook.ettr_at_best:.3f}")
    return lines


def _ettr_table(outlook: Outlook) -> Table:
    ettr, adapted = outlook.ettr, outlook.adaptive
    table = Table(box=None, pad_edge=False)
    for name in ("ETTR", "formula", "exact", "played", "nine runs of ten"):
        table.add_column(name, justify="left" if name == "ETTR" else "right")
    table.add_row(
        "restart after every failure",
        f"{ettr.closed_form:.3f}",
        f"{ettr.exact:.3f}",
        f"{ettr.monte_carlo:.3f}",
        f"{ettr.monte_carlo_low:.3f} to {ettr.monte_carlo_high:.3f}",
    )
    table.add_row(
        "train through failures",
        f"{adapted.closed_form:.3f}",
        "",
        f"{adapted.monte_carlo:.3f}",
        f"{adapted.monte_carlo_low:.3f} to {adapted.monte_carlo_high:.3f}",
        style="bold",
    )
    return table


def _notes(outlook: Outlook) -> list[str]:
    ettr, adapted = outlook.ettr, outlook.adaptive
    lines = [f"played: {outlook.replicas} runs of {outlook.run_days:.3g} days of work"]
    if ettr.low is not None and ettr.high is not None:
        lines.append(f"by the interval of the rate: {ettr.low:.3f} to {ettr.high:.3f} (exact)")
    if not outlook.is_closed_form_good and outlook.closed_form_error is not None:
        lines.append(
            f"the formula is off by {100 * outlook.closed_form_error:+.1f} %: it holds while failures "
            "and writes take little of the time"
        )
    assumed = adapted.assumed
    lines.append(
        f"training through: {assumed.pause_s:g} s lost to every failure and every return, "
        f"{adapted.down_share:.2%} of the nodes missing, speed falls {assumed.slope:g} times as much; "
        f"{adapted.layout.stages} stages, restart when more than {adapted.layout.tolerated} nodes of one are "
        f"gone ({_a_day(adapted.restarts_per_day)}), back after {assumed.repair_hours:g} h"
    )
    return [*lines, adapted.caveat, ""]


def _needed_table(wanted: Needed, conditions: Conditions) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"for ETTR {wanted.target:g}, one of these")
    for name in ("has to be", "is"):
        table.add_column(name, justify="right")
    interval = wanted.checkpoint_min
    table.add_row(
        "failures per 1000 node-days",
        _at_most(wanted.rate_per_1000_node_days),
        f"{conditions.rate_per_1000_node_days:.3g}",
    )
    table.add_row(
        "checkpoint interval, min",
        "not enough" if interval is None else f"{interval.low:.3g} to {interval.high:.3g}",
        f"{conditions.checkpoint_min:.3g}",
    )
    for words, name in (
        ("stop for a checkpoint, min", "write_min"),
        ("restart, min", "restart_min"),
        ("queue, min", "queue_min"),
    ):
        table.add_row(words, _at_most(getattr(wanted, name)), f"{getattr(conditions, name):.3g}")
    return table


def _a_day(count: float) -> str:
    return f"{count:.2g} a day" if count >= 0.001 else "next to never"


def _at_most(value: float | None) -> str:
    return "not enough" if value is None else f"at most {value:.3g}"


def say(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is."""
    console.print(line, style=style, highlight=False, soft_wrap=True, markup=False)
