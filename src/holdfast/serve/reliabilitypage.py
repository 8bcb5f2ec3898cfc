"""A cluster's reliability as one page: figures first, then how attempts end, how often nodes fail, and who.

The page needs no network and no other file; everything in it is also in the report's JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from holdfast.reliability.outagerates import OutageRates
from holdfast.reliability.overtime import OverTime
from holdfast.reliability.rates import Rate
from holdfast.reliability.report import Attribution, Checks, Jobs, Lemons, Lost, Report, Source
from holdfast.reliability.view import Expected
from holdfast.serve.chart import Chart, Panel, Series, draw
from holdfast.serve.pagestyle import BASE

_SHOWN_LEMONS = 15
_STYLE = (
    BASE
    + """
table{border-collapse:collapse;background:var(--paper);border:1px solid var(--line);border-radius:8px;
font-variant-numeric:tabular-nums;margin:0 0 8px;display:block;overflow-x:auto;
width:fit-content;max-width:100%}
th,td{padding:5px 14px;text-align:right;border-top:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500;border-top:0}
th:first-child,td:first-child,td.w{text-align:left}
td.w{white-space:normal;min-width:22em}td:has(i.b){text-align:left}
i.b{display:inline-block;height:.7em;background:var(--mark);border-radius:2px;vertical-align:baseline}
.bad{font-weight:700}
figure{margin:0 0 8px}figure svg{width:100%;height:auto;border:1px solid var(--line);border-radius:8px}
pre{background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:10px 14px;overflow-x:auto}
"""
)


def draw_page(report: Report) -> str:
    """Return the page as HTML."""
    parts = ["<h1>What to expect of this cluster</h1>"]
    if report.jobs is not None:
        parts += _jobs(report.jobs)
    if report.outages is not None:
        parts += _outages(report.outages)
    parts += _sources(report.sources)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Reliability</title>\n<style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


# --- jobs -------------------------------------------------------------------------------------


def _jobs(jobs: Jobs) -> list[str]:
    span = f"{jobs.since:%d %B %Y} to {jobs.until:%d %B %Y}" if jobs.since and jobs.until else "time unknown"
    parts = [
        f'<p class="lead">{span}: {jobs.attempts:,} attempts of {jobs.jobs:,} jobs</p>',
        _cards(_figures(jobs)),
        "<h2>How attempts end</h2>",
        _mix("state", jobs.statuses, "state"),
        "<h2>How large they are</h2>",
        _mix("GPUs, up to", jobs.sizes, "bucket"),
    ]
    if jobs.over_time is not None:
        parts += _over_time(jobs.over_time, jobs.rates.over_gpus)
    parts += _sizes(jobs)
    if jobs.expected is not None:
        parts += _expected(jobs.expected)
    parts += _attribution(jobs.attribution)
    parts += _ettr(jobs.ettr)
    parts += _lost(jobs.lost)
    if jobs.lemons is not None:
        parts += _lemons(jobs.lemons)
    if jobs.checks is not None:
        parts += _checks(jobs.checks)
    return parts


def _figures(jobs: Jobs) -> list[tuple[str, str, str]]:
    rate = jobs.rates.rate
    figures = [
        ("GPU time", f"{jobs.gpu_hours:,.0f} h", "of all attempts"),
        ("failure rate", _number(rate.per_1000_node_days), f"per 1000 node-days, {_interval(rate)}"),
    ]
    if jobs.hardware is not None:
        low, high = jobs.hardware["gpu_share_low"], jobs.hardware["gpu_share_high"]
        said = f"of GPU time in attempts that the cluster failed, {low:.1%} to {high:.1%}"
        figures.append(("touched by failures", f"{jobs.hardware['gpu_share']:.1%}", said))
    lost_h = jobs.lost.first_gpu_hours + jobs.lost.second_gpu_hours
    figures.append(("lost to failures", f"{lost_h:,.0f} GPU h", "if every job saves once an hour"))
    if jobs.lemons is not None:
        figures.append(("lemon nodes", str(jobs.lemons.flagged), f"of {jobs.lemons.nodes:,}"))
    return figures


def _interval(rate: Rate) -> str:
    return f"{rate.low:.2f} to {rate.high:.2f}, {rate.failures} failures"


def _mix(name: str, rows: Sequence[dict[str, Any]], key: str) -> str:
    """Return a table of shares by count and by GPU time, each with a bar."""
    most = max((max(row["share"], row["gpu_share"]) for row in rows), default=1.0)
    cells = [
        [
            _size(row[key]) if key == "bucket" else row[key],
            f"{row['attempts']:,}",
            _bar(row["share"], most),
            f"{row['share']:.1%}",
            _bar(row["gpu_share"], most),
            f"{row['gpu_share']:.1%}",
            f"{row['gpu_share_low']:.1%} to {row['gpu_share_high']:.1%}",
        ]
        for row in rows
    ]
    return _table([name, "attempts", "", "of attempts", "", "of GPU time", "90 % interval"], cells)


def _size(bucket: int) -> str:
    return f"{bucket:,}" if bucket else "none"


def _bar(share: float, most: float) -> str:
    width = 90 * share / most if most > 0 else 0
    return f'<i class="b" style="width:{width:.1f}px"></i>'


def _over_time(found: OverTime, over_gpus: int) -> list[str]:
    known = [each for each in found.stretches if each.rate is not None]
    if len(known) < 3:
        return []
    weeks = [(each.start - known[0].start).days / 7 for each in known]
    bounds = [
        Series(name=name, points=tuple(zip(weeks, values, strict=True)), is_reference=True, is_step=True)
        for name, values in (
            ("90 % high", [each.high or 0.0 for each in known]),
            ("90 % low", [each.low or 0.0 for each in known]),
        )
    ]
    rate = Series(
        name="rate",
        points=tuple(zip(weeks, [each.rate or 0.0 for each in known], strict=True)),
        is_main=True,
        is_step=True,
    )
    chart = Chart(
        title="Failures per 1000 node-days, week by week",
        subtitle=(f"attempts on more than {over_gpus} GPUs",),
        x_label=f"weeks since {known[0].start:%d %B %Y}",
        panels=(Panel(y_label="per 1000 node-days", series=(rate, *bounds)),),
    )
    shifts = [
        f"<li>{shift.start:%d %B %Y}: from {shift.before:.2f} to {shift.after:.2f}</li>"
        for shift in found.shifts
    ]
    said = f"<ul>{''.join(shifts)}</ul>" if shifts else "<p>Nothing says that it changed.</p>"
    return ["<h2>The failure rate over time</h2>", f"<figure>{draw(chart)}</figure>", said]


def _sizes(jobs: Jobs) -> list[str]:
    rows = [
        [
            f"{each.gpus:,}",
            f"{each.attempts:,}",
            str(each.failures),
            _hours(each.mttf_hours),
            f"{_hours(each.low)} to {_hours(each.high)}",
            _hours(each.projected_hours),
        ]
        for each in jobs.rates.sizes
    ]
    names = ["GPUs, up to", "attempts", "failures", "time to failure", "90 % interval", "by the rate"]
    return [
        "<h2>How long until a job fails</h2>",
        _table(names, rows),
        f'<p class="how">{escape(jobs.rates.exposure)}. By the rate: 1 / (nodes x rate).</p>',
    ]


def _expected(expected: Expected) -> list[str]:
    rows = [
        [
            f"{row['gpus']:,}",
            _hours(row["mttf_hours"]),
            f"{row['ettr']:.3f}",
            f"{row['ettr_low']:.3f} to {row['ettr_high']:.3f}",
            f"{row['through']:.3f}",
        ]
        for row in expected.rows
    ]
    return [
        "<h2>What larger jobs would get on with (expected ETTR)</h2>",
        _table(["GPUs", "time to failure", "restarting", "90 % interval", "training through failures"], rows),
        f'<p class="how">By the failure rate above, with a checkpoint every {expected.checkpoint_min:g} min '
        f"and {expected.restart_min:g} min to restart; <code>holdfast reliability ettr</code> takes other "
        f"values. Training through failures: {escape(expected.caveat)}.</p>",
    ]


def _attribution(found: Attribution) -> list[str]:
    rows = [
        [escape(row["cause"]), f"{row['attempts']:,}", f"{row['share']:.1%}", f"{row['gpu_hours']:,.0f}"]
        for row in found.causes
    ]
    said = (
        f"{found.matched:,} of {found.failed:,} FAILED attempts had a critical check on one of their nodes "
        "around their end; with all checks moved by a day it would have been "
        f"{found.matched_by_chance:,.0f}, by chance."
    )
    return [
        "<h2>What broke</h2>",
        _table(["cause", "attempts", "share", "GPU h"], rows),
        f'<p class="how">{said}</p>',
    ]


def _ettr(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    cells = [
        [
            _size(row["bucket"]),
            str(row["runs"]),
            f"{row['ettr']:.3f}" if row["ettr"] is not None else "",
            "" if row["ettr_low"] is None else f"{row['ettr_low']:.3f} to {row['ettr_high']:.3f}",
            f"{row['queue_h']:.2f}",
        ]
        for row in rows
    ]
    return [
        "<h2>How much of their time runs got on (ETTR)</h2>",
        _table(["GPUs, up to", "runs", "ETTR", "90 % interval", "queue, h"], cells),
        '<p class="how">Runs of 24 h and more; hourly checkpoints, 5 min to restart, and every end taken for '
        "a failure: rather too low than too high.</p>",
    ]


def _lost(lost: Lost) -> list[str]:
    cells = [
        [
            _size(row["bucket"]),
            str(row["failures"]),
            f"{row['first_gpu_h']:,.0f}",
            str(row["preemptions"]),
            f"{row['second_gpu_h']:,.0f}",
        ]
        for row in lost.sizes
    ]
    said = ""
    if lost.second_share is not None:
        said = (
            f'<p class="how">{lost.second_share:.0%} of the loss '
            f"({lost.second_low:.0%} to {lost.second_high:.0%}) is of jobs that were preempted for one that "
            "had been restarted.</p>"
        )
    names = ["GPUs, up to", "failures", "GPU h lost", "preempted for them", "GPU h lost"]
    return ["<h2>What failures cost</h2>", _table(names, cells), said]


def _lemons(lemons: Lemons) -> list[str]:
    rows = [
        [
            f'<span class="{"bad" if row["is_lemon"] else ""}">{escape(row["node"])}</span>',
            "lemon" if row["is_lemon"] else "",
            f"{row['times']:.1f}",
            f"{row['q']:.2g}",
            escape(row["why"]),
        ]
        for row in lemons.worst[:_SHOWN_LEMONS]
    ]
    parts = [
        "<h2>Nodes that keep failing jobs</h2>",
        _table(["node", "", "times the fleet", "q", "why"], rows, is_wide=True),
    ]
    if lemons.drain:
        lines = escape("\n".join(lemons.drain))
        parts.append(
            f"<details><summary>Commands that would drain them</summary><pre>{lines}</pre></details>"
        )
    return parts


def _checks(checks: Checks) -> list[str]:
    rows = [
        [escape(row["name"]), escape(row["severity"]), f"{row['touched']:,}", f"{row['share']:.2%}"]
        for row in checks.checks[:_SHOWN_LEMONS]
    ]
    share = checks.touched / checks.completed if checks.completed else 0.0
    return [
        "<h2>Checks that failed under jobs which ended well</h2>",
        _table(["check", "severity", "attempts", "of completed"], rows),
        f'<p class="how">{share:.2%} of {checks.completed:,} completed attempts saw one '
        f"({checks.low:.2%} to {checks.high:.2%}); below 1 % is good.</p>",
    ]


# --- failure records, and what was read ---------------------------------------------------------


def _outages(outages: OutageRates) -> list[str]:
    rows = [
        [
            escape(name),
            f"{system.nodes:,}",
            f"{system.days:,.0f}",
            f"{system.rate.failures:,}",
            _number(system.rate.per_1000_node_days),
            f"{system.rate.low:.2f} to {system.rate.high:.2f}",
            _number(system.hardware.per_1000_node_days),
            _number(system.others.per_1000_node_days) if system.others else "",
            f"{system.scatter.ratio:.1f}" if system.scatter else "",
        ]
        for name, system in outages.systems.items()
    ]
    names = [
        "system",
        "nodes",
        "days",
        "failures",
        "rate",
        "90 % interval",
        "hardware",
        "no front end",
        "scatter",
    ]
    causes = ", ".join(f"{escape(cause)} {share:.1%}" for cause, share in outages.whole.causes.items())
    return [
        "<h2>Failure records</h2>",
        _table(names, rows),
        f'<p class="how">Per 1000 node-days; {escape(outages.exposure)}. Scatter: variance of failures per '
        "node over their mean; far above 1, nodes are not alike, and the interval is too narrow. "
        f"Causes: {causes}.</p>",
    ]


def _sources(sources: Iterable[Source]) -> list[str]:
    rows, told = [], []
    for source in sources:
        cells = [source.place, source.table, f"{source.rows:,}", f"{source.left_out:,}", f"{source.broken:,}"]
        rows.append([escape(cell) for cell in cells])
        told += [f"<li>{escape(each.place)}: {escape(each.why)}</li>" for each in source.told]
    parts = ["<h2>What was read</h2>", _table(["file", "has", "rows", "left out", "not readable"], rows)]
    return [*parts, f"<ul>{''.join(told)}</ul>"] if told else parts


# --- pieces -----------------------------------------------------------------------------------


def _cards(figures: Iterable[tuple[str, str, str]]) -> str:
    cards = [
        f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(said)}</span></dd></div>"
        for name, value, said in figures
    ]
    return f"<dl>{''.join(cards)}</dl>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], *, is_wide: bool = False) -> str:
    """Return a table; cells are HTML already. The last column of a wide one holds sentences."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = []
    for row in rows:
        cells = [f"<td>{cell}</td>" for cell in row]
        if is_wide:
            cells[-1] = f'<td class="w">{row[-1]}</td>'
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _hours(hours: float | None) -> str:
    if hours is None or math.isinf(hours):
        return "∞"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:,.0f} d"
