"""Step times as SVG that fits any width: words keep their size, only the line is stretched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from holdfast.diagnose.telling import tell_duration
from holdfast.serve.axis import Axis
from holdfast.serve.store import PacePoint
from holdfast.serve.svg import num
from holdfast.serve.web.spark import highest
from holdfast.serve.web.views.pace import Mark, Pace
from holdfast.serve.web.views.words import parse, say_span

_WIDE, _HIGH, _TOP = 1000.0, 170.0, 30.0
_GAP = 6.0
"""So many times the usual distance between two points, and nothing is drawn between them."""
_LEAST_GAP_S = 10.0
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


def draw_pace(pace: Pace) -> Markup:
    """Return the figure; nothing where there are no points."""
    if not pace.points:
        return Markup("")
    times = [_seconds(point) for point in pace.points]
    across = Axis(times[0], times[-1] if times[-1] > times[0] else times[0] + 1.0, (0.0, _WIDE))
    up = Axis.over([highest(pace.points)], (_HIGH, 0.0))
    total = _TOP + _HIGH + 24
    parts = [
        f'<svg class="pace" width="100%" height="{num(total)}" role="img" '
        f'aria-label="{escape(describe(pace))}" data-points="{_listed(pace.points)}">',
        *_grid(up),
        f'<svg y="{num(_TOP)}" width="100%" height="{num(_HIGH)}" viewBox="0 0 {num(_WIDE)} {num(_HIGH)}" '
        'preserveAspectRatio="none">',
        *_shades(pace, across),
        *_lines(pace, across, up),
        "</svg>",
        *_labels(up),
        *_usual(pace, up),
        *(_mark(mark, across) for mark in pace.marks),
        *_clock(across, total),
        f'<line class="cursor" y1="{num(_TOP)}" y2="{num(_TOP + _HIGH)}" visibility="hidden"/>',
        "</svg>",
    ]
    return Markup("".join(parts))


def describe(pace: Pace) -> str:
    """Return the figure in words, for those who do not see it."""
    first, last = pace.points[0], pace.points[-1]
    lasted = _seconds(last) - _seconds(first)
    told = [f"Step time over {say_span(lasted)}, steps {first.step:,} to {last.step:,}"]
    told.append(f"now {tell_duration(last.step_s)}")
    if pace.usual_s is not None:
        told.append(f"usually {tell_duration(pace.usual_s)}")
    told += [
        f"{shade.kind} from {shade.start:%H:%M:%S} to {shade.end:%H:%M:%S}" for shade in pace.shades[-5:]
    ]
    return "; ".join(told)


def _seconds(point: PacePoint) -> float:
    at = parse(point.at)
    return at.timestamp() if at is not None else 0.0


def _listed(points: Sequence[PacePoint]) -> str:
    """Return the points for the script, which says what lies under the pointer."""
    return ";".join(
        f"{_seconds(point):.0f},{point.step},{point.step_s:.4g},{point.slowest_s:.4g},{point.slowest_rank}"
        for point in points
    )


def _grid(up: Axis) -> list[str]:
    heights = [num(_TOP + up(value)) for value in up.ticks()]
    return [f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>' for y in heights]


def _labels(up: Axis) -> list[str]:
    """Name the lines of the grid, on top of what is drawn: the whole width belongs to the steps."""
    return [
        f'<text class="tick" x="2" y="{num(_TOP + up(value) - 4)}">{_unit(value)}</text>'
        for value in up.ticks()
        if value > 0
    ]


def _unit(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{1000 * value:g} ms"


def _shades(pace: Pace, across: Axis) -> list[str]:
    parts = []
    for shade in pace.shades:
        left, right = across(shade.start.timestamp()), across(shade.end.timestamp())
        parts.append(
            f'<rect class="shade {escape(shade.kind)}" x="{num(left)}" width="{num(max(3.0, right - left))}" '
            f'height="{num(_HIGH)}"><title>{escape(shade.words)}</title></rect>'
        )
    return parts


def _lines(pace: Pace, across: Axis, up: Axis) -> list[str]:
    slowest = [point.slowest_s for point in pace.points]
    middle = [point.step_s for point in pace.points]
    gap = _longest(pace.points)
    return [
        f'<path class="slowest" d="{_path(pace.points, slowest, (across, up), gap)}"/>',
        f'<path class="line" d="{_path(pace.points, middle, (across, up), gap)}"/>',
    ]


def _longest(points: Sequence[PacePoint]) -> float:
    times = [_seconds(point) for point in points]
    between = [b - a for a, b in pairwise(times) if b > a]
    return max(_GAP * median(between), _LEAST_GAP_S) if between else _LEAST_GAP_S


def _path(points: Sequence[PacePoint], values: Sequence[float], axes: tuple[Axis, Axis], gap: float) -> str:
    across, up = axes
    words: list[str] = []
    before: float | None = None
    for point, value in zip(points, values, strict=True):
        at = _seconds(point)
        is_new = before is None or at - before > gap
        place = f"{num(across(at))} {num(up(min(value, up.high)))}"
        words.append(f"M{place}h.1" if is_new else f"L{place}")
        before = at
    return "".join(words)


def _usual(pace: Pace, up: Axis) -> list[str]:
    if pace.usual_s is None or pace.usual_s > up.high:
        return []
    y = _TOP + up(pace.usual_s)
    return [
        f'<line class="usual" x1="0" x2="100%" y1="{num(y)}" y2="{num(y)}"/>',
        f'<text class="tick e" x="99.6%" y="{num(y + 14)}">usual {tell_duration(pace.usual_s)}</text>',
    ]


def _mark(mark: Mark, across: Axis) -> str:
    x = num(across(mark.at.timestamp()) / 10) + "%"
    label = f'<text x="9" y="5">{escape(mark.label)}</text>' if mark.label else ""
    return (
        f'<g class="mark {mark.tone}"><title>{escape(f"{mark.at:%H:%M:%S} UTC: {mark.words}")}</title>'
        f'<line x1="{x}" x2="{x}" y1="18" y2="{num(_TOP + _HIGH)}"/><svg x="{x}" y="10" overflow="visible">'
        f'<use href="#s-{mark.shape}" x="-7" y="-8" width="14" height="14"/>{label}</svg></g>'
    )


def _clock(across: Axis, total: float) -> list[str]:
    """Draw about five round times of day, none where it would be cut off."""
    length = across.high - across.low
    step = next((each for each in _STEPS_S if length / each <= 5), 86_400 * -(-length // (5 * 86_400)))
    first = -(-across.low // step) * step
    parts = []
    for number in range(int((across.high - first) // step) + 1):
        at = first + number * step
        share = across(at) / 10
        if 4 <= share <= 96:
            words = f"{datetime.fromtimestamp(at, UTC):{_format(step)}}"
            parts.append(f'<text class="tick c" x="{num(share)}%" y="{num(total - 6)}">{words}</text>')
    return parts


def _format(step: float) -> str:
    if step >= 86_400:
        return "%d %b"
    return "%H:%M" if step >= 60 else "%H:%M:%S"
