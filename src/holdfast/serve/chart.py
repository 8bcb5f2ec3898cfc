"""Lines over a common axis as SVG, and a page to put them on: text in, text out, nothing to load.

Colours follow Okabe and Ito, so that people who see fewer of them can tell lines apart; lines that are only
there to compare with are grey and dashed. Every line is labelled at its end, and comes forward under the
pointer with its name and note. Light and dark follow the reader's settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

from holdfast.serve.axis import Axis
from holdfast.serve.svg import num, text

WIDTH = 1000
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 64, 190, 74, 56, 40
_LABEL_HEIGHT = 17
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b5569b", "#b87a00", "#2f9bd0", "#8c564b", "#6a3d9a")
_DARK = ("#58a6ff", "#ff8b4d", "#2ec49a", "#e79ac6", "#f2b632", "#8ed0f5", "#c9a79f", "#b69ae0")
_STYLE = (
    "svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--line:#e1e6eb;--grey:#6e7781}"
    "@media(prefers-color-scheme:dark){svg{--paper:#15191e;--ink:#e6edf3;--soft:#9aa5b1;--line:#2b323a;"
    "--grey:#8b949e}}"
    "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}"
    ".t{font-size:19px;font-weight:600;fill:var(--ink)}.e{text-anchor:end}.c{text-anchor:middle}"
    ".n{font-size:12px;font-variant-numeric:tabular-nums}.paper{fill:var(--paper)}"
    ".grid{stroke:var(--line)}.axis{stroke:var(--grey)}"
    ".l path{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}"
    ".l .hit{stroke:transparent!important;stroke-width:12;pointer-events:stroke}"
    ".l .lead{stroke-width:1;opacity:.5;stroke-dasharray:none}"
    ".main path{stroke-width:3.2}.main text{font-weight:700}.ref path{stroke-width:1.4;stroke-dasharray:5 4}"
    ".ref path,.fill path{stroke:var(--grey)}.ref text,.fill text{fill:var(--grey)}"
    ".fill .area{fill:var(--line);stroke:none}"
    ".l{transition:opacity .12s}svg:has(.l:hover) .l:not(:hover){opacity:.15}"
)
_PAGE_STYLE = (
    "body{margin:2rem auto;max-width:66rem;padding:0 1rem;font:15px/1.55 system-ui,sans-serif;"
    "color:#1f2328;background:#fff}figure{margin:0 0 1.5rem}svg{width:100%;height:auto}"
    "p{color:#59636e;margin:.4rem 0}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#15191e}p{color:#9aa5b1}}"
)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line."""

    name: str
    points: tuple[tuple[float, float], ...]
    is_step: bool = False
    """Each value holds until the next point, instead of being joined to it."""
    is_area: bool = False
    """Filled down to the axis, in grey."""
    is_reference: bool = False
    """Only there to compare with."""
    is_main: bool = False
    """What the picture is about."""
    colour: int | None = None
    """Which of the colours it has, so that it is the same in several charts; None: the next one."""
    label_at: float | None = None
    """The value beside which the name stands; None: the last one."""
    note: str = ""
    """Said beside the name under the pointer."""
    is_labelled: bool = True
    """Whether the name stands beside the line; under the pointer it always does."""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that share a vertical axis, which starts at 0 unless it is logarithmic."""

    y_label: str
    series: tuple[Series, ...]
    height: int = 320
    is_log: bool = False


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Panels above each other that share the horizontal axis."""

    title: str
    subtitle: tuple[str, ...] = ()
    """Lines below the title."""
    x_label: str
    panels: tuple[Panel, ...]
    is_log: bool = False
    """Whether the horizontal axis is logarithmic."""


def draw(chart: Chart) -> str:
    """Return the chart as an SVG document."""
    if not all(series.points for panel in chart.panels for series in panel.series):
        raise ValueError(f"{chart.title}: a line without points")
    xs = [x for panel in chart.panels for series in panel.series for x, _ in series.points]
    across = _x_axis(xs, is_log=chart.is_log)
    parts = [text(_LEFT, 32, chart.title, "t")]
    parts += [text(_LEFT, 55 + 19 * index, line) for index, line in enumerate(chart.subtitle)]
    top = _TOP + 19.0 * len(chart.subtitle)
    for panel in chart.panels:
        parts += _draw_panel(panel, across, top)
        top += panel.height + _GAP
    bottom = top - _GAP
    parts += _draw_x_axis(across, bottom, chart.x_label)
    height = bottom + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {num(height)}" role="img" '
        f'aria-label="{escape(chart.title)}">\n<style>{_STYLE}{_paint()}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{num(height)}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _x_axis(xs: Sequence[float], *, is_log: bool) -> Axis:
    """Return the horizontal axis, which starts at 0 unless that is far away."""
    ends = (_LEFT, WIDTH - _RIGHT)
    if not is_log and max(xs) > min(xs) > max(xs) / 2:
        return Axis(min(xs), max(xs), ends)
    return Axis.over(xs, ends, is_log=is_log)


def page(title: str, drawings: Sequence[str], notes: Sequence[str] = ()) -> str:
    """Return a page that holds drawings and the notes below them, and needs nothing else."""
    figures = "\n".join(f"<figure>{drawing}</figure>" for drawing in drawings)
    lines = "\n".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>\n<style>{_PAGE_STYLE}</style></head>\n"
        f"<body>\n{figures}\n{lines}\n</body></html>\n"
    )


def _draw_panel(panel: Panel, across: Axis, top: float) -> list[str]:
    values = [y for series in panel.series for _, y in series.points]
    room = 1.0 if panel.is_log else 1.06  # So that the highest line does not lie on the frame.
    up = Axis.over([*values, max(values) * room], (top + panel.height, top), is_log=panel.is_log)
    parts = [text(_LEFT, top - 12, panel.y_label)]
    for value in up.ticks():
        parts.append(_rule("grid", _LEFT, up(value), WIDTH - _RIGHT, up(value)))
        parts.append(text(_LEFT - 8, up(value) + 4, _say(value), "n e"))
    wanted = {n: up(_label_value(series)) for n, series in enumerate(panel.series) if series.is_labelled}
    labels = dict(zip(wanted, _place_labels(list(wanted.values()), top + panel.height), strict=True))
    drawn = [
        _draw_series(series, colour, (across, up), labels.get(number))
        for number, (series, colour) in enumerate(zip(panel.series, _colours(panel.series), strict=True))
    ]
    # What matters is drawn last, on top of the others.
    ranks = [-1 if one.is_area else 2 * one.is_main + (not one.is_reference) for one in panel.series]
    return parts + [drawn[index] for index in sorted(range(len(drawn)), key=lambda index: ranks[index])]


def _draw_series(series: Series, look: str, axes: tuple[Axis, Axis], label_y: float | None) -> str:
    across, up = axes
    path = _path(series, across, up)
    note = f": {series.note}" if series.note else ""
    fill = f'<path class="area" d="{path}V{num(up(up.low))}H{num(across(series.points[0][0]))}Z"/>'
    return (
        f'<g class="l {look}"><title>{escape(series.name + note)}</title>{fill if series.is_area else ""}'
        f'<path class="hit" d="{path}"/><path d="{path}"/>'
        f"{'' if label_y is None else _draw_label(series, axes, label_y)}</g>"
    )


def _draw_label(series: Series, axes: tuple[Axis, Axis], label_y: float) -> str:
    """Return the name beside the end of a line, and what leads there."""
    across, up = axes
    edge, end_y = WIDTH - _RIGHT, up(_label_value(series))
    start_x = edge if series.label_at is not None else min(edge, across(series.points[-1][0]))
    lead = f"M{num(start_x)},{num(end_y)}H{edge + 4}L{edge + 13},{num(label_y)}"
    return f'<path class="lead" d="{lead}"/>{text(edge + 17, label_y + 4, series.name)}'


def _label_value(series: Series) -> float:
    return series.points[-1][1] if series.label_at is None else series.label_at


def _path(series: Series, across: Axis, up: Axis) -> str:
    words: list[str] = []
    for index, (x, y) in enumerate(series.points):
        if index == 0 or not series.is_step:
            words.append(f"{'L' if index else 'M'}{num(across(x))},{num(up(y))}")
        else:
            words.append(f"H{num(across(x))}V{num(up(y))}")
    return "".join(words)


def _colours(series: Sequence[Series]) -> list[str]:
    """Return the classes of each line: the main one is blue, references are grey, the others take turns."""
    looks, taken = [], 0
    for one in series:
        if one.is_area:
            looks.append("fill")
        elif one.is_reference:
            looks.append("ref")
        elif one.is_main:
            looks.append("main c0")
        else:
            looks.append(f"c{1 + (taken if one.colour is None else one.colour) % (len(_LIGHT) - 1)}")
            taken += 1
    return looks


def _place_labels(wanted: Sequence[float], bottom: float) -> list[float]:
    """Return a height for each label near the end of its line, none on top of another."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    last = -math.inf
    for index in order:
        last = placed[index] = max(wanted[index], last + _LABEL_HEIGHT)
    limit = bottom
    for index in reversed(order):  # Push up again what was pushed out at the bottom.
        placed[index] = min(placed[index], limit)
        limit = placed[index] - _LABEL_HEIGHT
    return placed


def _draw_x_axis(across: Axis, y: float, label: str) -> list[str]:
    parts = [_rule("axis", _LEFT, y, WIDTH - _RIGHT, y)]
    for value in across.ticks():
        parts.append(_rule("axis", across(value), y, across(value), y + 5))
        parts.append(text(across(value), y + 20, _say(value), "n c"))
    return [*parts, text((_LEFT + WIDTH - _RIGHT) / 2, y + 42, label, "c")]


def _rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}"/>'


def _say(value: float) -> str:
    return f"{value:,.10g}"


def _paint() -> str:
    def rules(colours: Sequence[str]) -> str:
        return "".join(
            f".c{index} path{{stroke:{hue}}}.c{index} text{{fill:{hue}}}" for index, hue in enumerate(colours)
        )

    return f"{rules(_LIGHT)}@media(prefers-color-scheme:dark){{{rules(_DARK)}}}"
