"""``holdfast reliability mttf``: failure rates and times to failure from a file, as tables or JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.cli.files import one_line
from holdfast.cli.outlook import say
from holdfast.cli.quantities import parse_count, parse_positive, show_duration
from holdfast.errors import InputError
from holdfast.reliability.attemptrates import AttemptRates, SizeMttf, rates_of_attempts
from holdfast.reliability.intervals import LEVEL, Dispersion
from holdfast.reliability.outagerates import OutageRates, SystemRates, rates_of_outages
from holdfast.reliability.rates import Mttf, Rate, project, sizes
from holdfast.reliability.sources import read_any
from holdfast.reliability.tables import Reading

_SHOWN_GPUS = (8, 64, 512, 1024, 4096, 16_384, 131_072)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed, before anything is checked."""

    path: Path
    gpus_per_node: str = "8"
    over_gpus: str = "128"
    days: str | None = None


def print_mttf(request: Request, *, as_json: bool) -> None:
    """Read the file and show what it says of failures."""
    per_node = parse_count(request.gpus_per_node, "--gpus-per-node", least=1, most=1024)
    over = parse_count(request.over_gpus, "--over-gpus", least=0, most=10**9)
    days = None if request.days is None else parse_positive(request.days, "--days", most=1e6)
    which, reading = read_any(request.path)
    rates: OutageRates | AttemptRates
    if which == "outages":
        rates = rates_of_outages(reading.table, days=days)
    elif which == "attempts":
        rates = rates_of_attempts(reading.table, over_gpus=over, gpus_per_node=per_node)
    else:
        raise InputError(f"{request.path}: has events on nodes, expected failure records or attempts of jobs")
    if as_json:
        sys.stdout.write(to_json(rates, reading, per_node) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if isinstance(rates, OutageRates):
        _print_outages(console, rates, per_node)
    else:
        _print_attempts(console, rates, per_node)
    if reading.broken:
        say(console, f"{reading.broken} of {reading.rows} rows could not be read:")
        for each in reading.told:
            say(console, f"  {one_line(each.place)}: {one_line(each.why)}", "dim")


# --- as JSON ----------------------------------------------------------------------------------


def to_json(rates: OutageRates | AttemptRates, reading: Reading, gpus_per_node: int) -> str:
    """Return the rates as one document."""
    document: dict[str, Any] = {
        "level": LEVEL,
        "exposure": rates.exposure,
        "gpus_per_node": gpus_per_node,
        "rows": reading.rows,
        "broken": reading.broken,
        "left_out": reading.left_out,
        "told": [{"place": each.place, "why": each.why} for each in reading.told],
    }
    if isinstance(rates, OutageRates):
        document |= _system_dict(rates.whole, gpus_per_node)
        if len(rates.systems) > 1:
            each = {name: _system_dict(system, gpus_per_node) for name, system in rates.systems.items()}
            document["systems"] = each
    else:
        document |= _rate_dict(rates.rate) | _mttf_dict(rates.rate, gpus_per_node)
        document |= {"over_gpus": rates.over_gpus, "attempts": rates.attempts}
        document |= {"unmeasured": rates.unmeasured, "measured": rates.sizes}
    return msgspec.json.encode(document).decode()


def _rate_dict(rate: Rate) -> dict[str, Any]:
    return {
        "rate_per_1000_node_days": rate.per_1000_node_days,
        "rate_low": rate.low,
        "rate_high": rate.high,
        "quasi_poisson_low": rate.wide_low,
        "quasi_poisson_high": rate.wide_high,
        "failures": rate.failures,
        "node_days": rate.node_days,
    }


def _mttf_dict(rate: Rate, gpus_per_node: int) -> dict[str, Any]:
    found = project(rate, sizes(gpus_per_node), gpus_per_node)
    return {
        "mttf_hours": {str(each.gpus): each.hours for each in found},
        "mttf_hours_low": {str(each.gpus): each.low for each in found},
        "mttf_hours_high": {str(each.gpus): each.high for each in found},
    }


def _system_dict(system: SystemRates, gpus_per_node: int) -> dict[str, Any]:
    scatter = system.scatter
    return {
        **_rate_dict(system.rate),
        "nodes": system.nodes,
        "days": system.days,
        **_mttf_dict(system.rate, gpus_per_node),
        "hardware": _rate_dict(system.hardware),
        "front_end": None if system.front_end is None else _rate_dict(system.front_end),
        "without_front_end": None if system.others is None else _rate_dict(system.others),
        "dispersion": None if scatter is None else _scatter_dict(scatter),
        "causes": system.causes,
        "details": system.details,
    }


def _scatter_dict(scatter: Dispersion) -> dict[str, Any]:
    return {**msgspec.to_builtins(scatter), "is_too_wide": scatter.is_too_wide, "says": scatter.tell()}


# --- as text ----------------------------------------------------------------------------------


def _print_outages(console: Console, rates: OutageRates, gpus_per_node: int) -> None:
    whole = rates.whole
    many = f", {len(rates.systems)} systems" if len(rates.systems) > 1 else ""
    say(console, f"{whole.rate.failures} failures of {whole.nodes} nodes{many}; exposure: {rates.exposure}")
    _say_rate(console, whole.rate)
    if whole.scatter is not None:
        say(console, whole.scatter.tell())
    say(console, "causes: " + _in_words(whole.causes.items()))
    console.print(_systems_table(rates))
    _print_mttf(console, project(whole.rate, _shown(gpus_per_node), gpus_per_node))


def _print_attempts(console: Console, rates: AttemptRates, gpus_per_node: int) -> None:
    say(console, f"{rates.attempts} attempts; exposure: {rates.exposure}")
    _say_rate(console, rates.rate)
    if not rates.attempts and rates.sizes:
        say(console, f"no attempt had more than {rates.over_gpus} GPUs; --over-gpus N takes smaller ones")
    if rates.unmeasured:
        say(console, f"{rates.unmeasured} attempts left out: their length or their size is not told")
    if rates.sizes:
        console.print(_sizes_table(rates.sizes))
    _print_mttf(console, project(rates.rate, _shown(gpus_per_node), gpus_per_node))


def _say_rate(console: Console, rate: Rate) -> None:
    if rate.per_1000_node_days is None:
        say(console, "failure rate: not known, there is no exposure")
        return
    wide = f"; quasi-Poisson {rate.wide_low:.3g} to {rate.wide_high:.3g}"
    is_wide = rate.wide_high > rate.high
    say(
        console,
        f"failure rate: {rate.per_1000_node_days:.3g} per 1000 node-days "
        f"({LEVEL:.0%} interval {rate.low:.3g} to {rate.high:.3g}{wide if is_wide else ''})",
        "bold",
    )


def _in_words(shares: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{one_line(name)} {share:.1%}" for name, share in shares)


def _systems_table(rates: OutageRates) -> Table:
    names = ("system", "nodes", "days", "failures", "rate", "interval", "hardware", "no front end", "scatter")
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name == "system" else "right")
    for name, system in rates.systems.items():
        others = system.others or system.rate
        table.add_row(
            one_line(name),
            str(system.nodes),
            f"{system.days:.0f}",
            str(system.rate.failures),
            _three(system.rate.per_1000_node_days),
            f"{system.rate.low:.3g} to {system.rate.high:.3g}",
            _three(system.hardware.per_1000_node_days),
            _three(others.per_1000_node_days),
            "" if system.scatter is None else f"{system.scatter.ratio:.1f}",
        )
    return table


def _sizes_table(found: list[SizeMttf]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("up to GPUs", "attempts", "failures", "measured MTTF, h", "interval", "by the rate, h"):
        table.add_column(name, justify="right")
    for each in found:
        to = " on" if each.high is None else f" to {each.high:.3g}"
        table.add_row(
            str(each.gpus),
            str(each.attempts),
            str(each.failures),
            _three(each.mttf_hours),
            f"{each.low:.3g}{to}",
            _three(each.projected_hours),
        )
    return table


def _print_mttf(console: Console, found: list[Mttf]) -> None:
    if not found:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("GPUs", "mean time to failure", "interval"):
        table.add_column(name, justify="right")
    for each in found:
        to = f" to {show_duration(3600 * each.high)}" if math.isfinite(each.high) else " on"
        mean = show_duration(3600 * each.hours) if math.isfinite(each.hours) else "no failure seen"
        table.add_row(str(each.gpus), mean, show_duration(3600 * each.low) + to)
    console.print(table)


def _shown(gpus_per_node: int) -> list[int]:
    return [size for size in _SHOWN_GPUS if size >= gpus_per_node]


def _three(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
