"""Lines of delimited text made whole: cells with line breaks in them are joined, what does not fit is told.

sacct quotes nothing, so a line break in a job's name or comment splits its row. Lines that have as many
delimiters as the header are rows; only runs of others are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_NEWLINE = 10
_MOST_JOINED = 1000
"""Lines of one row; a text that is no table must not become a single one."""
_CACHED = 1 << 18
"""Bytes that are looked at together, so that they stay in the processor's cache."""

Lines = npt.NDArray[np.int64]
_ZERO: Lines = np.zeros(1, np.int64)


class Block(NamedTuple):
    """Whole rows of a piece of a file."""

    data: bytes
    """One row per line, each with the right count of delimiters."""
    lines: Lines
    """On which line of the piece, from 0, each row began."""
    broken: list[tuple[int, int]]
    """Lines that are no row, each with its count of delimiters."""
    height: int
    """How many lines there were."""


class Row(NamedTuple):
    """Some lines that belong together."""

    line: int
    text: bytes
    marks: int
    """Its delimiters."""


def mend(
    data: bytes, delimiter: bytes, count: int, *, has_free_end: bool = False, follows_row: bool = False
) -> Block:
    """Return the rows of lines that end with a line break; ``count`` is how many delimiters a row has.

    With a free end the last column is one of free text: a line without delimiters after a row belongs to it.
    ``follows_row`` says that the first line comes after one.
    """
    ends, counts = _scan(data, delimiter)
    odd = np.flatnonzero(counts != count)
    if not odd.size:
        return Block(data, np.arange(len(ends)), [], len(ends))
    pieces, lines, broken = [], [], []
    after = 0  # The first line that is not dealt with.
    for run in np.split(odd, np.flatnonzero(np.diff(odd) != 1) + 1):
        first, last = int(run[0]), int(run[-1])
        pieces.append(data[_start(ends, after) : _start(ends, first)])
        lines.append(np.arange(after, first))
        texts = data[_start(ends, first) : int(ends[last])].split(b"\n")
        for row in _join(texts, counts[first : last + 1].tolist(), count, first):
            if row.marks == count:
                pieces.append(row.text + b"\n")
                lines.append(np.array([row.line]))
            elif not (has_free_end and row.marks == 0 and (row.line > 0 or follows_row)):
                broken.append((row.line, row.marks))
        after = last + 1
    pieces.append(data[_start(ends, after) :])
    lines.append(np.arange(after, len(ends)))
    return Block(b"".join(pieces), np.concatenate(lines), broken, len(ends))


def split_last(data: bytes, delimiter: bytes, count: int) -> int:
    """Return where to cut a piece of a file so that no row is cut: after the last line that fits, or at 0."""
    last = data[data.rfind(b"\n", 0, -1) + 1 :]
    if last.count(delimiter) == count:
        return len(data)
    ends, counts = _scan(data, delimiter)
    fitting = np.flatnonzero(counts == count)
    return int(ends[fitting[-1]]) + 1 if fitting.size else 0


def _scan(data: bytes, delimiter: bytes) -> tuple[Lines, Lines]:
    """Return where each line ends, and how many delimiters it has."""
    chars = np.frombuffer(data, np.uint8)
    ends, totals, total = [_ZERO[:0]], [_ZERO], 0
    for first in range(0, len(chars), _CACHED):
        some = chars[first : first + _CACHED]
        some_ends, is_mark = np.flatnonzero(some == _NEWLINE), some == delimiter[0]
        ends.append(some_ends + first)
        totals.append(_marks_before(some_ends, is_mark) + total)
        total += int(np.count_nonzero(is_mark))
    summed = np.concatenate(totals)
    return np.concatenate(ends), summed[1:] - summed[:-1]


def _marks_before(ends: Lines, is_mark: npt.NDArray[np.bool_]) -> Lines:
    """Return how many delimiters stand before each of some line breaks."""
    if not ends.size:
        return ends
    until_last = is_mark[: ends[-1] + 1]
    starts = np.concatenate((_ZERO, ends[:-1]))
    # Sums of bytes are twice as fast as places of delimiters, and right up to 255 in a line.
    before = np.add.reduceat(until_last.view(np.uint8), starts, dtype=np.uint8).cumsum(dtype=np.int64)
    if before[-1] == np.count_nonzero(until_last):
        return before
    return np.searchsorted(np.flatnonzero(is_mark), ends)


def _start(ends: Lines, line: int) -> int:
    return int(ends[line - 1]) + 1 if line else 0


def _join(texts: list[bytes], counts: list[int], count: int, line: int) -> Iterator[Row]:
    """Yield the rows of lines that are none by themselves: joined while they do not get too long."""
    first = marks = 0  # The lines that are held begin with the first.
    for place, (text, more) in enumerate(zip(texts, counts, strict=True)):
        if place > first and (marks + more > count or place - first >= _MOST_JOINED):
            yield Row(line + first, b" ".join(texts[first:place]), marks)
            first, marks = place, 0
        if place == first and not text.strip():
            first += 1
            continue
        marks += more
        if marks >= count:
            yield Row(line + first, b" ".join(texts[first : place + 1]), marks)
            first, marks = place + 1, 0
    if first < len(texts):
        yield Row(line + first, b" ".join(texts[first:]), marks)
