"""Gantt charts of timed schedules as one SVG: one panel below another, all on the same scale of time.

Rectangles written directly; the file needs nothing to be looked at, follows the light or dark theme of who
looks, and stays below about a megabyte whatever the size of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from holdfast.plan.grid import MEANINGS, choose_workers, show
from holdfast.plan.ops import KINDS
from holdfast.plan.problem import Problem, Worker
from holdfast.plan.timing import Timed
from holdfast.serve.gantt_rows import Rows
from holdfast.serve.svg import PATTERNS, STYLE, Box, num, round_up, text

WIDTH = 1200
_LEFT, _RIGHT = 112, 24
_MAX_DETAILED_OPS = 2_000
_MAX_OPS = 8_000
_MAX_ROWS = 96


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule to draw."""

    title: str
    problem: Problem
    timed: Timed
    lower_bound: float | None = None
    """Of the period; drawn if given."""


def draw(panels: Sequence[Panel]) -> str:
    """Return the picture."""
    horizon = max(panel.timed.makespan for panel in panels)
    pixels = (WIDTH - _LEFT - _RIGHT) / horizon
    detail = _choose_detail(panels)
    parts = [*_legend(panels)]
    y = 48.0
    for panel in panels:
        drawn, height = _Drawing(panel, pixels, detail).draw()
        parts += [f'<g transform="translate(0 {num(y)})">', *drawn, "</g>"]
        y += height + 26
    names = escape(", ".join(panel.title for panel in panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{num(y)}" '
        f'viewBox="0 0 {WIDTH} {num(y)}" role="img" aria-label="Gantt chart: {names}">\n'
        f"<style>{STYLE}</style>\n<defs>{PATTERNS}</defs>\n"
        + "\n".join([Box(0, 0, WIDTH, y).draw("paper", radius=8), *parts])
        + "\n</svg>\n"
    )


class _Detail(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each panel is drawn; the same for all, so that they can be compared."""

    workers: tuple[Worker, ...]
    has_all: bool
    """Whether these are all; if not, stages are drawn as wholes too."""
    is_detailed: bool
    """Whether each operation is a rectangle of its own."""


def _choose_detail(panels: Sequence[Panel]) -> _Detail:
    problem = min((panel.problem for panel in panels), key=lambda problem: sum(map(sum, problem.speeds)))
    ops = max(sum(map(len, panel.timed.schedule.orders)) for panel in panels)
    many = problem.dp * problem.pp
    if many <= _MAX_ROWS and ops <= _MAX_OPS:
        is_detailed = ops <= _MAX_DETAILED_OPS
        return _Detail(workers=tuple(problem.workers), has_all=True, is_detailed=is_detailed)
    rows = min(_MAX_ROWS // 2, _MAX_OPS * many // (2 * ops))
    some = tuple(choose_workers(problem, max(1, rows)))
    return _Detail(workers=some, has_all=False, is_detailed=False)


class _Drawing:
    """Draws one panel from its title down to its brackets."""

    def __init__(self, panel: Panel, pixels: float, detail: _Detail) -> None:
        self._panel, self._problem, self._timed = panel, panel.problem, panel.timed
        self._pixels, self._detail = pixels, detail
        self._rows = Rows(panel.problem, panel.timed, left=_LEFT, pixels=pixels)
        self._parts: list[str] = []
        self._y = 0.0

    def draw(self) -> tuple[list[str], float]:
        """Return the parts and the height they take."""
        self._parts.append(text(_LEFT, 14, self._panel.title, "t"))
        self._y = top = 26.0
        if not self._detail.has_all:
            self._overview()
        self._workers()
        self._parts[1:1] = self._lines(top, self._y)
        self._brackets()
        return self._parts, self._y

    def _workers(self) -> None:
        workers = self._detail.workers
        height = 18.0 if len(workers) <= 24 else 13.0 if len(workers) <= 48 else 9.0
        before = workers[0].pipeline
        for worker in workers:
            self._y += 8 if worker.pipeline != before else 0
            before = worker.pipeline
            self._parts += self._rows.worker(worker, self._y, height, is_detailed=self._detail.is_detailed)
            self._y += height + (2 if height > 12 else 1)

    def _overview(self) -> None:
        """Draw the stages as wholes, and say what follows."""
        for stage in range(self._problem.pp):
            self._parts += self._rows.stage(stage, self._y, 30)
            self._y += 34
        shown = len({worker.pipeline for worker in self._detail.workers})
        words = "Above: which share of each stage's live workers does what, over time. "
        words += f"Below: {shown} of the {self._problem.dp} pipelines; the others are left out."
        self._parts.append(text(_LEFT, self._y + 20, words, "s"))
        self._y += 32

    def _lines(self, top: float, bottom: float) -> list[str]:
        """Draw the axis of time and a line at each of its numbers."""
        parts = []
        step = round_up(60 / self._pixels)
        for number in range(int(self._timed.makespan / step + 1e-9) + 1):
            x = num(_LEFT + number * step * self._pixels)
            parts.append(f'<path class="grid" d="M{x} {num(top - 4)}V{num(bottom + 4)}"/>')
            parts.append(text(float(x), bottom + 16, show(number * step), "m"))
        self._y = bottom + 22
        return parts

    def _brackets(self) -> None:
        """Draw how long the step is, how often it repeats, and how often it could at best."""
        spans, period, bound = self._timed.spans, self._timed.period, self._panel.lower_bound
        # Sums of floats may differ in their last digit; the first stage of the longest is meant.
        stage = next(stage for stage, span in enumerate(spans) if span >= period * (1 - 1e-9))
        begin = min(starts[0] for starts in self._timed.starts[stage :: self._problem.pp] if starts)
        words = f"period {show(period)} (stage {stage})"
        if bound is not None and period <= bound * (1 + 1e-9):
            words += ", the lower bound: proven optimal"
        self._bracket(begin, begin + period, words)
        if bound is not None and period > bound * (1 + 1e-9):
            self._bracket(begin, begin + bound, f"lower bound of the period {show(bound)}", "lb")
        first = self._rows.first
        self._bracket(first, first + self._timed.makespan, f"makespan {show(self._timed.makespan)}")

    def _bracket(self, begin: float, end: float, words: str, kind: str = "br") -> None:
        left, right, y = self._rows.x(begin), self._rows.x(end), self._y + 8
        size = 7.0 * len(words) + 16
        middle = (left + right) / 2
        line = f"M{num(left)} {num(y - 5)}v10M{num(left)} {num(y)}H{num(middle - size / 2)}"
        line += f"M{num(middle + size / 2)} {num(y)}H{num(right)}M{num(right)} {num(y - 5)}v10"
        if right - left < size + 20:  # No room in the line: the words follow it.
            line = f"M{num(left)} {num(y - 5)}v10M{num(left)} {num(y)}H{num(right)}m0 -5v10"
            self._parts.append(text(right + 8, y + 4, words, "s k"))
        else:
            self._parts.append(text(middle, y + 4, words, "s k m"))
        self._parts.append(f'<path class="{kind}" d="{line}"/>')
        self._y += 20


def _legend(panels: Sequence[Panel]) -> list[str]:
    """Explain only what is there."""
    orders = [order for panel in panels for order in panel.timed.schedule.orders]
    kinds = [kind for kind in KINDS if any(op.kind == kind for order in orders for op in order)]
    entries = [(kind, MEANINGS[kind]) for kind in kinds]
    is_rerouted = any(
        op.pipeline != worker.pipeline
        for panel in panels
        for worker, order in zip(panel.timed.schedule.workers, panel.timed.schedule.orders, strict=True)
        for op in order
    )
    entries += [("F r", "re-routed, with home pipeline")] * is_rerouted + [("idle", "idle")]
    entries += [("x", "dead")] * any(min(map(min, panel.problem.speeds)) == 0 for panel in panels)
    parts: list[str] = []
    x = float(_LEFT)
    for look, words in entries:
        swatch = Box(x, 14, 22, 14)
        parts.append(swatch.draw(look, radius=2))
        if look == "F r":
            parts.append(swatch.draw("h"))
        letter = f"{look} " if look in KINDS else ""
        parts.append(text(x + 28, 25, f"{letter}{words}", "s"))
        x += 28 + 7 * len(letter + words) + 22
    return parts
