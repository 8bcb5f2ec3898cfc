"""Nested bands over two logarithmic axes as SVG: how far each level reaches, and where one stands."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from holdfast.serve.axis import Axis
from holdfast.serve.svg import num, text

_WIDTH, _HEIGHT = 1000, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 60, 96, 56
_LABEL = 48
_STYLE = (
    "svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--line:#e1e6eb;--grey:#6e7781;--band:#0072b2;"
    "--here:#b3261e}"
    "@media(prefers-color-scheme:dark){svg{--paper:#15191e;--ink:#e6edf3;--soft:#9aa5b1;--line:#2b323a;"
    "--grey:#8b949e;--band:#58a6ff;--here:#ff8f86}}"
    "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}"
    ".t{font-size:19px;font-weight:600;fill:var(--ink)}.e{text-anchor:end}.c{text-anchor:middle}"
    ".n{font-size:12px;font-variant-numeric:tabular-nums}.paper{fill:var(--paper)}"
    ".grid{stroke:var(--line)}.axis{stroke:var(--grey)}"
    ".band{fill:var(--band);fill-opacity:.14;stroke:var(--band);stroke-width:1.4}"
    ".level{font-weight:600;fill:var(--ink)}"
    ".here{fill:var(--here);stroke:var(--paper);stroke-width:2}.h{fill:var(--here);font-weight:700}"
)

Point = tuple[float, float]


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A band: its edge, once around, and what stands at its tip."""

    name: str
    edge: tuple[Point, ...]
    tip: Point


class Contour(msgspec.Struct, frozen=True, kw_only=True):
    """Bands, the widest first, and the place to mark."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    levels: tuple[Level, ...]
    here: Point
    here_name: str


def draw_contour(contour: Contour) -> str:
    """Return the picture as an SVG document."""
    across = Axis(*contour.x_range, (_LEFT, _WIDTH - _RIGHT), is_log=True)
    up = Axis(*contour.y_range, (_HEIGHT - _BOTTOM, _TOP), is_log=True)
    x, y = across(contour.here[0]), up(contour.here[1])
    is_late = x > _WIDTH - 3 * _RIGHT
    parts = [
        text(_LEFT, 32, contour.title, "t"),
        text(_LEFT, 55, contour.subtitle),
        text(_LEFT, _TOP - 12, contour.y_label),
        *_rules(across, up),
        *(_draw_level(level, across, up) for level in contour.levels),
        text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, contour.x_label, "c"),
        f'<circle class="here" cx="{num(x)}" cy="{num(y)}" r="6"/>',
        text(x - 11 if is_late else x + 11, y + 5, contour.here_name, "h e" if is_late else "h"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(contour.title)}">\n<style>{_STYLE}</style>\n'
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _rules(across: Axis, up: Axis) -> list[str]:
    left, right, low, high = _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, _TOP
    parts = []
    for value in up.ticks():
        parts.append(_line("grid", (left, up(value)), (right, up(value))))
        parts.append(text(left - 8, up(value) + 4, f"{value:,.10g}", "n e"))
    for value in across.ticks():
        parts.append(_line("grid", (across(value), low), (across(value), high)))
        parts.append(text(across(value), low + 20, f"{value:,.10g}", "n c"))
    return [*parts, _line("axis", (left, low), (right, low))]


def _draw_level(level: Level, across: Axis, up: Axis) -> str:
    places = [(across(x), up(_within(y, up))) for x, y in level.edge]
    tip_x, tip_y = across(level.tip[0]), up(_within(level.tip[1], up))
    # A band too narrow for its name has it beside.
    x, look = (tip_x + 8, "level n") if tip_x - _LEFT < _LABEL else (tip_x - 8, "level n e")
    band = f'<path class="band" d="{_path(places)}Z"><title>{escape(level.name)}</title></path>'
    return band + text(x, tip_y + 4, level.name, look)


def _within(value: float, axis: Axis) -> float:
    return min(max(value, axis.low), axis.high)


def _path(places: Sequence[Point]) -> str:
    return "".join(f"{'L' if index else 'M'}{num(x)},{num(y)}" for index, (x, y) in enumerate(places))


def _line(kind: str, start: Point, end: Point) -> str:
    return (
        f'<line class="{kind}" x1="{num(start[0])}" y1="{num(start[1])}" '
        f'x2="{num(end[0])}" y2="{num(end[1])}"/>'
    )
