"""What a guilty rank and a normal one of its role did in the last steps of their traces, on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path

import msgspec
import numpy as np

from holdfast.diagnose.case import Case
from holdfast.diagnose.telling import tell_duration
from holdfast.diagnose.wording import name_ranks
from holdfast.errors import HoldfastError
from holdfast.findings import Suspect
from holdfast.observe.kineto import KINDS, Kind, Trace, read_trace
from holdfast.serve.axis import Axis
from holdfast.serve.casewords import bare_name, clean, guilty_ranks, short_name
from holdfast.serve.pageparts import chart
from holdfast.serve.ranktable import RankTable
from holdfast.serve.svg import OP_COLOURS, OP_INK, Box, num, text
from holdfast.serve.tracelanes import Block, Window, find_window, lanes_of

WIDTH = 1200
_LEFT, _RIGHT, _LANE = 110, 20, 26
_LARGEST = 1 << 29
"""Bytes of a trace: more take minutes to read, and a page is made while somebody waits."""
_TRIED = 64
_LABELLED, _FRAMED = 46, 6
"""Widths from which on a block has its name, and a frame: around a thin one it would hide it."""
_WORDS: dict[Kind, str] = {
    "compute": "compute",
    "memory": "memory",
    "collective": "collective",
    "python": "Python",
}
_COLOURS: dict[Kind, str] = dict(zip(KINDS, OP_COLOURS.values(), strict=True))
STYLE = (
    ".lanes{--bad:#b3261e;--idle:#eff2f5}@media(prefers-color-scheme:dark){.lanes{--bad:#ff8f86;--idle:#232a31}}"
    ".lanes text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}"
    ".lanes .t{font-size:14px;font-weight:600;fill:var(--ink)}.lanes .e{text-anchor:end}"
    ".lanes .m{text-anchor:middle;font-variant-numeric:tabular-nums}.lanes .idle{fill:var(--idle)}"
    ".lanes .grid{stroke:var(--line)}.lanes .step{stroke:var(--soft);stroke-dasharray:3 3;fill:none}"
    f".lanes .o{{font-size:11px;fill:{OP_INK};pointer-events:none}}"
    + "".join(f".lanes .{kind}{{fill:{colour}}}" for kind, colour in _COLOURS.items())
    + f".lanes .g{{fill:var(--bad)}}.lanes .f{{stroke:var(--ink)}}.lanes .o.w{{fill:#fff}}"
    f"@media(prefers-color-scheme:dark){{.lanes .o.w{{fill:{OP_INK}}}}}"
)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Who is shown beside whom, and for what."""

    suspect: Suspect
    guilty: int
    normal: int | None
    """None: of the role of the guilty one there is nobody with a trace who is not a suspect."""

    @property
    def shown(self) -> list[tuple[int, str]]:
        """Ranks, and what is said of them."""
        both = [(self.guilty, "suspect")]
        return both if self.normal is None else [*both, (self.normal, "normal, of the same role")]


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    trace: Trace
    window: Window


def draw_timelines(case: Case, table: RankTable) -> str:
    """Return both timelines, or a line that says why there are none."""
    if not case.verdict.suspects:
        return ""
    pair = find_pair(case, table)
    if pair is None:
        return '<p class="how">There is no timeline: no trace of a suspect is at hand.</p>'
    shown = []
    for rank, role in pair.shown:
        try:
            shown.append(_read(Path(case.traces[rank]), f"rank {rank}: {role}"))
        # A page about a broken job meets broken files: whatever is wrong with one, the rest is worth having.
        except (HoldfastError, OSError, ValueError, LookupError, MemoryError, RecursionError) as error:
            why = f"There is no timeline: the trace of rank {rank} cannot be drawn: {error}"
            return f'<p class="how">{escape(clean(why, 400))}</p>'
    return _draw_both(shown, pair)


def find_pair(case: Case, table: RankTable) -> Pair | None:
    """Return the first guilty rank and the most usual one of its role that both have a trace.

    Where there is no such pair, a guilty rank alone is better than nothing.
    """
    role_of = dict(zip(table.ranks, table.roles, strict=True))
    off = dict(zip(table.ranks, np.abs(table.share - table.usual).sum(axis=0).tolist(), strict=True))
    named = set(guilty_ranks(case))
    normal = [rank for rank in table.ranks if rank in case.traces and rank not in named]
    alone = None
    for suspect in case.verdict.suspects:
        for rank in [rank for rank in suspect.ranks if rank in case.traces and rank in role_of][:_TRIED]:
            peers = [peer for peer in normal if role_of[peer] == role_of[rank]]
            if peers:
                return Pair(suspect=suspect, guilty=rank, normal=min(peers, key=lambda peer: off[peer]))
            alone = alone or Pair(suspect=suspect, guilty=rank, normal=None)
    return alone


def _read(path: Path, title: str) -> _Shown:
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} is too large for a page: more than {_LARGEST >> 20} MiB")
    trace = read_trace(path)
    if not len(trace.start_us):
        raise ValueError(f"{path} holds nothing that takes time")
    window = find_window(trace)
    if not 0 < window.length_us < float("inf"):
        raise ValueError(f"{path} tells no times")
    return _Shown(title=title, trace=trace, window=window)


def _draw_both(shown: Sequence[_Shown], pair: Pair) -> str:
    """Return both below each other; each ends with its last step, and the scale is the same."""
    length_us = max(each.window.length_us for each in shown)
    parts, y = [], 8.0
    for each in shown:
        window = msgspec.structs.replace(each.window, start_us=each.window.end_us - length_us)
        parts += _draw_lanes(msgspec.structs.replace(each, window=window), y, pair.suspect.function)
        y += 34 + _LANE * len(KINDS)
    parts = [*_draw_axis(length_us, y), *parts]
    svg = (
        f'<svg class="lanes" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {num(y + 38)}" '
        f'role="img" aria-label="Timeline of {name_ranks(rank for rank, _ in pair.shown)}">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )
    said = "The last steps, or seconds; short events are drawn as one. "
    if pair.normal is None:
        said += "No trace of a normal rank of its role is at hand to compare with. "
    if pair.suspect.function is not None:
        said += f"Red: {short_name(pair.suspect.function)}. "
    if any(each.window.step_ends_us for each in shown):
        said += "Dashed: ends of steps. "
    said += "Python: the innermost function, in the thread that trains."
    return chart(svg, "Timelines") + f'<p class="how">{escape(said)}</p>'


def _draw_lanes(shown: _Shown, top: float, function: str | None) -> list[str]:
    window = shown.window
    across = Axis(window.start_us, window.end_us, (_LEFT, WIDTH - _RIGHT))
    lanes = lanes_of(shown.trace, window)
    parts = [text(_LEFT, top + 14, shown.title, "t")]
    first = top + 22
    for number, kind in enumerate(KINDS):
        y = first + _LANE * number
        parts.append(text(_LEFT - 10, y + 16, _WORDS[kind], "e"))
        parts.append(Box(_LEFT, y, WIDTH - _LEFT - _RIGHT, _LANE - 4).draw("idle"))
        for block, following in zip_longest(lanes[kind], lanes[kind][1:]):
            parts.append(_draw_block(block, across, y, (kind, function)))
            # What it calls is drawn on it: its name has the room before that.
            until_us = block.end_us if following is None else min(block.end_us, following.start_us)
            parts += _draw_name(block, (across(block.start_us), across(until_us)), y, function)
    for end in window.step_ends_us:
        if window.start_us < end < window.end_us:
            x = num(across(end))
            parts.append(
                f'<path class="step" d="M{x} {num(first - 4)}V{num(first + _LANE * len(KINDS) - 2)}"/>'
            )
    return parts


def _draw_block(block: Block, across: Axis, y: float, meant: tuple[Kind, str | None]) -> str:
    kind, function = meant
    left, right = across(block.start_us), across(block.end_us)
    width = max(0.4, right - left - (0.6 if right - left > 3 else 0))
    look = f"{kind} g{' f' * (width >= _FRAMED)}" if block.name == function else kind
    return Box(left, y, width, _LANE - 4).draw(look, title=_tell(block))


def _draw_name(block: Block, room: tuple[float, float], y: float, function: str | None) -> list[str]:
    width = room[1] - room[0]
    if width < _LABELLED:
        return []
    name = bare_name(block.name, max(4, int((width - 6) / 6.4)))
    return [text(room[0] + 4, y + 15, name, "o w" if block.name == function else "o")]


def _tell(block: Block) -> str:
    lasted = tell_duration((block.end_us - block.start_us) / 1e6)
    longest = sorted(block.names, key=lambda name: -block.names[name])[:2]
    names = ", ".join(clean(name, 80) for name in longest)
    if block.count == 1:
        return f"{names}: {lasted}"
    return f"{block.count:,} events in {lasted}: {names}{', …' * (len(block.names) > 2)}"


def _draw_axis(length_us: float, bottom: float) -> list[str]:
    """Return the axis of time, in the unit that fits."""
    unit, name = (1e6, "s") if length_us >= 5e6 else (1e3, "ms") if length_us >= 5e3 else (1.0, "µs")
    across = Axis(0.0, length_us / unit, (_LEFT, WIDTH - _RIGHT))
    parts = []
    for value in across.ticks():
        x = num(across(value))
        parts.append(f'<path class="grid" d="M{x} 12V{num(bottom + 2)}"/>')
        parts.append(text(across(value), bottom + 18, f"{value:,.10g} {name}", "m"))
    return parts
