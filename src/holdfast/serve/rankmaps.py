"""The two maps of a case: functions by ranks, and stages by pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import chain

import numpy as np

from holdfast.diagnose.case import Case
from holdfast.diagnose.layout import find_layout
from holdfast.serve.casewords import clean, guilty_ranks, short_names
from holdfast.serve.heatmap import Cell, Column, Map, Row, draw_map, level_of
from holdfast.serve.pageparts import chart, clip
from holdfast.serve.ranktable import RankTable, choose_columns, choose_rows, evenly, suspect_rows

MOST_FUNCTIONS = 20
MOST_RANKS = 512
MOST_STAGES = 64
MOST_CELLS = 2048
_POINTS = (0.01, 0.02, 0.05, 0.15)
"""Of the time: what differs by less than one in a hundred does not matter."""
_LONGER = (0.03, 0.1, 0.25, 0.6)
_DETAILED = 128
_STACK = 16
_NAME = 42
"""Characters of a function's name beside its row."""


def draw_functions(case: Case, table: RankTable) -> str:
    """Return the map of functions by ranks, with what there is to know about it."""
    if not table.functions:
        return '<p class="how">No function takes 1 % of the time on any rank: there is nothing to draw.</p>'
    abnormal, guilty = suspect_rows(case, table), set(guilty_ranks(case))
    named = list(chain.from_iterable(abnormal))
    rows = choose_rows(table, named, MOST_FUNCTIONS)
    columns = choose_columns(table, guilty, MOST_RANKS)
    place = {table.ranks[column]: number for number, column in enumerate(columns)}
    outlined = {
        (rows.index(row), place[rank])
        for mine, suspect in zip(abnormal, case.verdict.suspects, strict=True)
        for row in mine
        if row in rows
        for rank in suspect.ranks
        if rank in place
    }
    drawn = Map(
        label="Heat map: functions by ranks",
        rows=_function_rows(table, rows, set(named)),
        columns=_rank_columns(table, columns, guilty),
        cells=_function_cells(table, rows, columns),
        outlined=outlined,
        across="rank",
        note="median",
        steps=_POINTS,
        unit="percentage points of the time",
    )
    said = _tell_choice(table, rows, columns, is_sure=bool(guilty))
    return chart(draw_map(drawn), "Functions by ranks") + f'<p class="how">{said}</p>'


def _function_rows(table: RankTable, rows: Sequence[int], abnormal: set[int]) -> list[Row]:
    stacks = [table.functions[row].stack for row in rows]
    middle = np.median(table.share, axis=1) if table.ranks else np.zeros(len(table.functions))
    return [
        Row(
            name=name,
            title=_tell_stack(stack),
            note=f"{middle[row]:.1%}",
            is_marked=row in abnormal,
        )
        for name, row, stack in zip(short_names(stacks, _NAME), rows, stacks, strict=True)
    ]


def _tell_stack(stack: Sequence[str]) -> str:
    shown = [clean(name, 120) for name in stack[:_STACK]]
    more = [f"and {len(stack) - _STACK} more"] * (len(stack) > _STACK)
    return "\ncalled by ".join([*shown, *more])


def _rank_columns(table: RankTable, columns: Sequence[int], guilty: set[int]) -> list[Column]:
    has_roles = len(set(table.roles)) > 1
    return [
        Column(
            name=str(table.ranks[column]),
            part=f"stage {table.roles[column]}" if has_roles else "",
            is_marked=table.ranks[column] in guilty,
        )
        for column in columns
    ]


def _function_cells(table: RankTable, rows: Sequence[int], columns: Sequence[int]) -> list[list[Cell]]:
    names = short_names([table.functions[row].stack for row in rows], _NAME)
    is_detailed = len(columns) <= _DETAILED
    return [
        [_cell(table, row, column, f"{name}\n" if is_detailed else "") for column in columns]
        for row, name in zip(rows, names, strict=True)
    ]


def _cell(table: RankTable, row: int, column: int, before: str) -> Cell:
    share, usual = float(table.share[row, column]), float(table.usual[row, column])
    # Shares come in 65,535 parts: half of one must not decide about a colour.
    level = level_of(round(share - usual, 4), _POINTS)
    number = f"{100 * share:.0f}" if share >= 0.005 else "·"
    return Cell(level, f"{before}rank {table.ranks[column]}: {share:.1%}, usual {usual:.1%}", number)


def _tell_choice(table: RankTable, rows: Sequence[int], columns: Sequence[int], *, is_sure: bool) -> str:
    """Return what the map shows and what it leaves out, as HTML."""
    parts = [
        "Share of the time on the critical path, in percent; the colour compares a rank with the median of "
        "the normal ranks of its role. Point at a name for its whole stack, at a cell for its numbers."
    ]
    if is_sure:
        parts.append("Framed: what the suspects are blamed for.")
    if len(rows) < len(table.functions):
        parts.append(
            f"{len(rows)} of {len(table.functions)} functions: the abnormal and those that take most time."
        )
    if len(columns) < len(table.ranks):
        who = "the suspects and an even sample of the others" if is_sure else "an even sample"
        parts.append(f"{len(columns):,} of {len(table.ranks):,} ranks: {who}.")
    return escape(" ".join(parts))


# --- stages by pipelines ------------------------------------------------------------------------


def draw_stages(case: Case, table: RankTable) -> str:
    """Return the map of stages by pipelines; nothing where there are no stages."""
    if len(set(table.roles)) < 2:
        return ""
    members: dict[int, list[int]] = {}
    for rank, role in sorted(_all_roles(case, table).items()):
        members.setdefault(role, []).append(rank)
    guilty, found = set(guilty_ranks(case)), _own_cells(table)
    blamed = {stage for stage, ranks in members.items() if guilty.intersection(ranks)}
    stages = _choose(blamed, sorted(members), MOST_STAGES)
    hit = {at for ranks in members.values() for at, rank in enumerate(ranks) if rank in guilty}
    everywhere = range(max(map(len, members.values())))
    shown = _choose(hit, everywhere, max(1, min(MOST_RANKS, MOST_CELLS // len(stages))))
    ranks_at = [
        [members[stage][at] if at < len(members[stage]) else None for at in shown] for stage in stages
    ]
    drawn = Map(
        label="Heat map: stages by pipelines",
        rows=[Row(f"stage {stage}", f"{len(members[stage]):,} ranks") for stage in stages],
        columns=[Column(str(at), is_marked=at in hit) for at in shown],
        cells=[
            [None if rank is None else found.get(rank, _nothing(rank)) for rank in row] for row in ranks_at
        ],
        outlined={
            (row, column)
            for row, ranks in enumerate(ranks_at)
            for column, rank in enumerate(ranks)
            if rank in guilty
        },
        across="pipeline",
        steps=_LONGER,
        unit="percent of the role's median",
    )
    said = "How much longer a rank's own work (compute, memory, Python) takes than is usual for its role. "
    said += "Framed: suspects. Dashed: no profile."
    for name, some, count in (("stages", stages, len(members)), ("pipelines", shown, len(everywhere))):
        if len(some) < count:
            said += f" {len(some):,} of {count:,} {name}: those of suspects and an even sample."
    return chart(draw_map(drawn), "Stages by pipelines") + f'<p class="how">{escape(said)}</p>'


def _all_roles(case: Case, table: RankTable) -> dict[int, int]:
    """Return the roles also of ranks without a profile, where that changes nothing for the others."""
    known = dict(zip(table.ranks, table.roles, strict=True))
    told = {
        rank for mine in case.groups.values() for each in mine for rank in each.ranks if each.kind != "rest"
    }
    everyone = set(known) | {rank for rank in told | set(case.groups) if 0 <= rank < case.verdict.world_size}
    roles = find_layout({rank: case.groups.get(rank, ()) for rank in sorted(everyone)}).roles
    return roles if all(roles[rank] == role for rank, role in known.items()) else known


def _choose(first: set[int], everything: Sequence[int], most: int) -> list[int]:
    """Return all, or some that come first and a sample of the others, in order."""
    if len(everything) <= most:
        return list(everything)
    kept = evenly(sorted(first), max(1, most // 2))
    rest = sorted(set(everything) - set(kept))
    return sorted([*kept, *evenly(rest, most - len(kept))])


def _own_cells(table: RankTable) -> dict[int, Cell]:
    mine, usual = table.own()
    cells = {}
    for rank, own, middle in zip(table.ranks, mine.tolist(), usual.tolist(), strict=True):
        longer = own / middle - 1 if middle > 0 else 0.0
        title = f"rank {rank}: {own:.1%} of the time are its own, usual {middle:.1%}"
        cells[rank] = Cell(level_of(round(longer, 4), _LONGER), clip(title, 120), str(rank))
    return cells


def _nothing(rank: int) -> Cell:
    return Cell(None, f"rank {rank}: no profile", str(rank))
