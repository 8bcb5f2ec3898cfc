"""Heat maps as SVG: cells in nine steps from *less* (blue) by *as usual* (grey) to *more* (orange).

Blue and orange differ for all common kinds of colour blindness, and each gets further from the paper the
further it is from usual, in light and in dark. The style goes into the page once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from holdfast.serve.svg import Box, num, text

WIDTH = 1200
LEVELS = 4
"""Steps to each side of usual."""
_LEFT, _RIGHT = 330, 66
_ROW, _TOP, _WIDEST, _GAP = 24, 46, 46, 10
_VISIBLE = 9
"""Width from which on a cell with a frame around it shows its colour."""
_NUMBERED = 28
"""Width of a cell from which on its number fits."""
_LIGHT = (
    "#14568c",
    "#4a90c4",
    "#9bc5e3",
    "#d3e5f3",
    "#eceff2",
    "#fde0c5",
    "#f8b07a",
    "#e0702b",
    "#a63d00",
)
_DARK = ("#8ecbff", "#3f8fca", "#245a85", "#1d3a52", "#262d35", "#4d3522", "#86531f", "#d07a2e", "#ffb066")


def _paint(colours: Sequence[str], dark: Collection[int], inks: tuple[str, str]) -> str:
    """Return rules for cells and for the numbers on them, which stand out from them."""
    rules = []
    for place, colour in enumerate(colours):
        ink = inks[place in dark]
        rules.append(f".q{place}{{fill:{colour}}}.v{place}{{fill:{ink}}}")
    return "".join(rules)


STYLE = (
    ".map{--none:#8b949e}.map text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}"
    ".map .e{text-anchor:end}.map .m{text-anchor:middle}.map .k{fill:var(--ink)}"
    ".map .b{fill:var(--ink);font-weight:700}.map .n{font-variant-numeric:tabular-nums}"
    ".map .cell{font-size:11px;text-anchor:middle;pointer-events:none;font-variant-numeric:tabular-nums}"
    ".map .out{fill:none;stroke:var(--ink);stroke-width:2.2;pointer-events:none}"
    ".map .none{fill:transparent;stroke:var(--none);stroke-dasharray:3 2}"
    ".map .hit{fill:transparent}.map .role{stroke:var(--soft);stroke-width:1}"
    + _paint(_LIGHT, (0, 1, 7, 8), ("#1f2328", "#fff")).replace(".q", ".map .q").replace(".v", ".map .v")
    + "@media(prefers-color-scheme:dark){"
    + _paint(_DARK, (1, 2, 3, 4, 5, 6), ("#0d1117", "#e6edf3"))
    .replace(".q", ".map .q")
    .replace(".v", ".map .v")
    + "}"
)


class Cell(NamedTuple):
    """One cell; without a level nothing is known of it."""

    level: int | None
    title: str
    number: str = ""


class Row(NamedTuple):
    """A row: its name, what shows when it is pointed at, and a note at its end."""

    name: str
    title: str
    note: str = ""
    is_marked: bool = False


class Column(NamedTuple):
    """A column: its name, and the part that it belongs to; parts are set apart."""

    name: str
    part: str = ""
    is_marked: bool = False


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by columns."""

    label: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    cells: Sequence[Sequence[Cell | None]]
    """By row and column; None: there is no such cell."""
    outlined: Collection[tuple[int, int]] = ()
    """Rows and columns of cells with a frame around them."""
    across: str
    """What columns are."""
    note: str = ""
    """What the notes are."""
    steps: tuple[float, ...]
    """Where one colour becomes the next, to both sides of usual."""
    unit: str


def level_of(value: float, steps: Sequence[float]) -> int:
    """Return the step of a value: 0 is as usual."""
    beyond = sum(abs(value) >= step for step in steps)
    return beyond if value > 0 else -beyond


def draw_map(chart: Map) -> str:
    """Return the heat map."""
    places = _places(chart.columns)
    bottom = _TOP + _ROW * len(chart.rows)
    end = (places[-1].right if places else _LEFT) + 8
    parts = [
        *_draw_head(chart, places),
        *(part for number, _ in enumerate(chart.rows) for part in _draw_row(chart, number, places)),
        *(_draw_frame(run, places) for run in _runs(chart.outlined)),
        *([text(end + 44, _TOP - 8, chart.note, "e")] if chart.note else []),
        *_draw_legend(chart, bottom + 22),
    ]
    notes = [
        text(end + 44, _TOP + _ROW * number + 16, row.note, "e n") for number, row in enumerate(chart.rows)
    ]
    height = bottom + 64
    return (
        f'<svg class="map" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{chart.label}">\n' + "\n".join([*parts, *(notes if chart.note else [])]) + "\n</svg>"
    )


class _Place(NamedTuple):
    """Where a column is."""

    x: float
    width: float

    @property
    def right(self) -> float:
        return self.x + self.width


def _places(columns: Sequence[Column]) -> list[_Place]:
    """Return where each column is; among many, those that are marked are wide enough to be seen."""
    starts = [number > 0 and column.part != columns[number - 1].part for number, column in enumerate(columns)]
    room: float = WIDTH - _LEFT - _RIGHT
    gap = min(_GAP, 0.25 * room / max(1, sum(starts)))
    room -= gap * sum(starts)
    width = min(_WIDEST, room / max(1, len(columns)))
    marked = sum(column.is_marked for column in columns)
    wide = width
    if width < _VISIBLE and marked * _VISIBLE < 0.3 * room:
        wide = _VISIBLE
        width = (room - marked * wide) / max(1, len(columns) - marked)
    places, x = [], float(_LEFT)
    for column, is_new in zip(columns, starts, strict=True):
        x += gap * is_new
        places.append(_Place(x, wide if column.is_marked else width))
        x = places[-1].right
    return places


def _draw_head(chart: Map, places: Sequence[_Place]) -> list[str]:
    """Return names of parts and of columns, as many as there is room for."""
    parts = [text(_LEFT - 10, _TOP - 8, chart.across, "e")]
    for name, group in groupby(range(len(places)), key=lambda number: chart.columns[number].part):
        mine = list(group)
        left, right = places[mine[0]].x, places[mine[-1]].right
        parts.append(f'<path class="role" d="M{num(left)} {_TOP - 24}H{num(right - 1)}"/>')
        fitting = [said for said in (name, name.rpartition(" ")[2]) if right - left > 6.2 * len(said)]
        parts += [text((left + right) / 2, _TOP - 29, said, "m k") for said in fitting[:1]]
    return parts + _draw_names(chart.columns, places)


def _draw_names(columns: Sequence[Column], places: Sequence[_Place]) -> list[str]:
    """Return names of columns; marked ones come first, so that they are never left out."""
    taken: list[tuple[float, float]] = []
    parts = []
    order = sorted(range(len(columns)), key=lambda number: not columns[number].is_marked)
    for number in order:
        middle, half = places[number].x + places[number].width / 2, 3.6 * len(columns[number].name) + 5
        if all(middle + half <= low or middle - half >= high for low, high in taken):
            taken.append((middle - half, middle + half))
            look = "m n b" if columns[number].is_marked else "m n"
            parts.append(text(middle, _TOP - 8, columns[number].name, look))
    return parts


def _draw_row(chart: Map, number: int, places: Sequence[_Place]) -> list[str]:
    row, y = chart.rows[number], _TOP + _ROW * number
    parts = [
        text(_LEFT - 10, y + 16, row.name, "e b" if row.is_marked else "e k"),
        Box(0, y, _LEFT, _ROW).draw("hit", title=row.title),
    ]
    for place, cell in zip(places, chart.cells[number], strict=True):
        if cell is None:
            continue
        look = "none" if cell.level is None else f"q{cell.level + LEVELS}"
        # Thin cells have no gaps and reach a little into the next: rounding would leave seams of paper.
        width = place.width - 1 if place.width > 5 else place.width + 0.1
        parts.append(Box(place.x, y, width, _ROW - 1).draw(look, title=cell.title))
        if cell.number and place.width >= _NUMBERED:
            ink = "" if cell.level is None else f" v{cell.level + LEVELS}"
            parts.append(text(place.x + place.width / 2, y + 15.5, cell.number, f"cell{ink}"))
    return parts


def _runs(outlined: Collection[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Join cells side by side: row, first column, last column."""
    runs: list[tuple[int, int, int]] = []
    for row, column in sorted(outlined):
        if runs and runs[-1][0] == row and runs[-1][2] == column - 1:
            runs[-1] = (row, runs[-1][1], column)
        else:
            runs.append((row, column, column))
    return runs


def _draw_frame(run: tuple[int, int, int], places: Sequence[_Place]) -> str:
    row, first, last = run
    left, right = places[first].x, places[last].right
    return Box(left - 0.5, _TOP + _ROW * row - 0.5, max(2.0, right - left), _ROW).draw("out", radius=2)


def _draw_legend(chart: Map, y: float) -> list[str]:
    """Return all colours in a row with the values between them."""
    wide = 40
    parts = [text(_LEFT - 10, y + 11, "less than usual", "e")]
    for place in range(2 * LEVELS + 1):
        parts.append(Box(_LEFT + wide * place, y, wide, 14).draw(f"q{place}"))
    bounds = [*(-step for step in chart.steps[::-1]), *chart.steps]
    for place, bound in enumerate(bounds):
        parts.append(text(_LEFT + wide * (place + 1), y + 28, f"{100 * bound:+g}", "m n"))
    words = f"more than usual, in {chart.unit}"
    return [*parts, text(_LEFT + wide * (2 * LEVELS + 1) + 10, y + 11, words)]
