"""Step times in the logs of Megatron-LM and torchtitan, as they print them.

Megatron: ``iteration 15/ 1030 | … | elapsed time per iteration (ms): 1234.5 | … | global batch size: 512 |``.
torchtitan: ``2026-05-18 16:04:46,338 - root - INFO - step: 14  loss: 3.2  …  tps: 7,282 …``, with tokens per
second of a device instead of a time; how many tokens a step has follows from the times of the lines.
"""

from __future__ import annotations

import itertools
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


_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|.*?elapsed time per iteration \(ms\):\s*([\d.]+)")
_BATCH = re.compile(r"\bglobal batch size:\s*(\d+)")
_TITAN = re.compile(r"\bstep:\s*(\d+)\s.*?\btps:\s*([\d,.]+)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def find_format(text: str) -> Callable[[str], list[Line]] | None:
    """Return the reader of a log; None: it is none that we know."""
    if _MEGATRON.search(text):
        return read_megatron
    if _TITAN.search(_COLOR.sub("", text)):
        return read_torchtitan
    return None


def read_megatron(text: str) -> list[Line]:
    """Return the iterations; a batch that grows is more work."""
    lines = []
    for row, line in enumerate(text.splitlines(), start=1):
        found = _MEGATRON.search(line)
        if found is not None:
            batch = _BATCH.search(line)
            lines.append(
                Line(
                    row=row,
                    step=int(found[1]),
                    duration_s=float(found[2]) / 1000,
                    work=float(batch[1]) if batch is not None and int(batch[1]) > 0 else None,
                )
            )
    return lines


def read_torchtitan(text: str) -> list[Line]:
    """Return the steps that were logged, one line each; other ranks' lines of the same step are left out."""
    found: list[tuple[int, int, float, datetime | None]] = []
    for row, line in enumerate(_COLOR.sub("", text).splitlines(), start=1):
        match = _TITAN.search(line)
        if match is None or (found and found[-1][1] == int(match[1])):
            continue
        time = _TIME.search(line)
        at = None if time is None else datetime.strptime(time[0], "%Y-%m-%d %H:%M:%S,%f")
        found.append((row, int(match[1]), float(match[2].replace(",", "")), at))
    tokens = _tokens_per_step([(step, tps, at) for _, step, tps, at in found])
    return [Line(row=row, step=step, duration_s=tokens / tps) for row, step, tps, _ in found if tps > 0]


def _tokens_per_step(lines: list[tuple[int, float, datetime | None]]) -> float:
    """Return how many tokens a device handles in a step; 1 where no line says when it was written."""
    tokens = []
    for (step, _, at), (later, tps, then) in itertools.pairwise(lines):
        if at is not None and then is not None and later > step:
            tokens.append((then - at).total_seconds() / (later - step) * tps)
    return statistics.median(tokens) if tokens and statistics.median(tokens) > 0 else 1.0
