"""Step times in the logs of Megatron-LM and torchtitan, as they print them.

Megatron: ``iteration 15/ 1030 | … | elapsed time per iteration (ms): 1234.5 | … | global batch size: 512 |``.
torchtitan: ``2026-05-18 16:04:46,338 - root - INFO - step: 14  loss: 3.2  …  tps: 7,282 …``, with tokens per
second of a device instead of a time; how many tokens a step has follows from the times of the lines.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable
from datetime import datetime

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What a line of a log says of a step."""

    row: int
    step: int
    duration_s: float
    work: float | None = None


_MEGATRON = re.compile(
    r"\biteration\s+(\d{1,15})\s*/\s*\d+\s*\|.*?elapsed time per iteration \(ms\):\s*([^\s|]+)"
)
_BATCH = re.compile(r"\bglobal batch size:\s*(\d{1,15})\b")
_TITAN = re.compile(r"\bstep:\s*(\d{1,15})[ \t].*?\btps:\s*(\S+)")
_RANK = re.compile(r"\[rank(\d+)\]")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def find_format(text: str) -> Callable[[str], list[Line]] | None:
    """Return the reader of a log; None: it is none that we know."""
    text = _COLOR.sub("", text)
    if _MEGATRON.search(text):
        return read_megatron
    if _TITAN.search(text):
        return read_torchtitan
    return None


def read_megatron(text: str) -> list[Line]:
    """Return the iterations; a batch that grows is more work."""
    lines: list[Line] = []
    for row, line in enumerate(_COLOR.sub("", text).splitlines(), start=1):
        found = _MEGATRON.search(line)
        if found is not None and not (lines and lines[-1].step == int(found[1])):
            batch = _BATCH.search(line)
            lines.append(
                Line(
                    row=row,
                    step=int(found[1]),
                    duration_s=_number(found[2]) / 1000,
                    work=float(batch[1]) if batch is not None and int(batch[1]) > 0 else None,
                )
            )
    return lines


def read_torchtitan(text: str) -> list[Line]:
    """Return the steps that were logged, one line each; other ranks' lines of the same step are left out."""
    found: list[tuple[int, int, float, datetime | None]] = []
    teller = None
    for row, line in enumerate(_COLOR.sub("", text).splitlines(), start=1):
        match = _TITAN.search(line)
        if match is None:
            continue
        rank = _RANK.search(line)
        teller = teller or rank
        # A line of another rank, or, where lines do not say whose they are, of the same step.
        is_other = rank[1] != teller[1] if rank and teller else bool(found) and found[-1][1] == int(match[1])
        if is_other:
            continue
        found.append((row, int(match[1]), _number(match[2].replace(",", "")), _time(line)))
    tokens = _tokens_per_step([(step, tps, at) for _, step, tps, at in found])
    return [Line(row=row, step=step, duration_s=tokens / tps if tps else 0.0) for row, step, tps, _ in found]


def _number(word: str) -> float:
    """Return the number that a word is; NaN, which no step may take, if it is none."""
    try:
        return float(word)
    except ValueError:
        return math.nan


def _time(line: str) -> datetime | None:
    found = _TIME.search(line)
    try:
        return None if found is None else datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S,%f")
    except ValueError:  # The 31st of February.
        return None


def _tokens_per_step(lines: list[tuple[int, float, datetime | None]]) -> float:
    """Return how many tokens a device handles in a step; 1 where no line says when it was written."""
    tokens = []
    for (step, _, at), (later, tps, then) in itertools.pairwise(lines):
        if at is not None and then is not None and later > step:
            tokens.append((then - at).total_seconds() / (later - step) * tps)
    return statistics.median(tokens) if tokens and statistics.median(tokens) > 0 else 1.0
