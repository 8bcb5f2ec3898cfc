"""Which attempts had a node while something happened on it.

There are millions of attempts and each has many nodes, so names of nodes and times become small numbers
first: a node and a moment are then one number, and whether anything lies in a span is one binary search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from holdfast.reliability.nodesets import NodeSets, find_places

Ints = npt.NDArray[np.int64]
_MINUTE_BITS = 26
"""2^26 microseconds are 67 seconds."""
_MOST_BITS = 22
"""Of the number of a piece of time: so many minutes are eight years."""
_ROUGH_BITS = 22
"""Of the number of a node and a rough piece of time."""
_TOGETHER = 1 << 16
"""Spans that are looked at together: few, so that what is made of them stays in the processor's cache."""
_NONE: Ints = np.zeros(0, np.int64)


def near(spans: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Return the spans, once for each ``node`` of their list on which something was seen about that time.

    Spans have ``node_list``, ``_from`` and ``_to``; what was seen has ``node`` and ``at``, none of them null.
    Times are compared by the minute or so: who wants to know exactly has to look again, but only at these.
    """
    if spans.is_empty() or seen.is_empty():
        return spans.clear().with_columns(pl.lit(None, pl.String).alias("node"))
    at = _micros(seen["at"])
    grid = _Grid(at)
    first, last = grid.place(_micros(spans["_from"])), grid.place(_micros(spans["_to"]))
    # While nothing happens anywhere, nothing happens on any node: those need not be told apart.
    is_busy = grid.is_any(first, last) & spans["node_list"].is_not_null().to_numpy()
    busy = np.flatnonzero(is_busy)
    known = seen["node"].unique()
    lists = NodeSets(spans["node_list"][busy])
    places = find_places(lists.names, known)
    where, when = find_places(seen["node"], known), grid.place(at)
    happened = np.append(np.unique(where * grid.width + when), np.iinfo(np.int64).max)
    rough = _Rough(where, when, len(known), grid.width)
    rows, nodes = [_NONE], [_NONE]
    for begin in range(0, len(busy), _TOGETHER):
        place, name = lists.nodes(begin, begin + _TOGETHER)
        span, node = busy[place], places[name]
        some = rough.is_any(node, first[span], last[span])
        span, node = span[some], node[some]
        key = node * grid.width
        following = happened[np.searchsorted(happened, key + first[span])]
        hit = following <= key + last[span]
        rows.append(span[hit])
        nodes.append(node[hit])
    return spans[np.concatenate(rows)].with_columns(known[np.concatenate(nodes)])


class _Grid:
    """Time in pieces of about a minute, from the first thing that happened to the last."""

    def __init__(self, at: Ints) -> None:
        self._origin = int(at.min())
        span = int(at.max()) - self._origin
        # A shift is far faster than a division; records of centuries get coarser pieces, not more memory.
        self._shift = max(_MINUTE_BITS, span.bit_length() - _MOST_BITS)
        self.width = (span >> self._shift) + 3
        """Pieces, with one before and one after all."""
        counts = np.bincount(self.place(at), minlength=self.width)
        self._before = np.concatenate(([0], np.cumsum(counts)))

    def place(self, times: Ints) -> Ints:
        """Return in which piece each time lies."""
        pieces: Ints = (times - self._origin) >> self._shift
        return pieces.clip(-1, self.width - 2) + 1

    def is_any(self, first: Ints, last: Ints) -> npt.NDArray[np.bool_]:
        """Say whether anything happened from one piece to another."""
        return self._before[last + 1] > self._before[first]


class _Rough:
    """How much happened on each node until when, by hours or days: small enough to look it up at once.

    A binary search for each node of each attempt takes ten times as long, and this spares nearly all.
    """

    def __init__(self, node: Ints, piece: Ints, nodes: int, width: int) -> None:
        self._shift = max(0, ((nodes + 1) * width).bit_length() - _ROUGH_BITS)
        self._width = (width >> self._shift) + 2
        # The last row stands for nodes on which nothing happened at all.
        counts = np.zeros((nodes + 1, self._width), np.int32)
        np.add.at(counts, (node, (piece >> self._shift) + 1), 1)
        self._until = counts.cumsum(axis=1, dtype=np.int32).ravel()
        self._nobody = nodes

    def is_any(self, node: Ints, first: Ints, last: Ints) -> npt.NDArray[np.bool_]:
        """Say whether anything may have happened on a node from one piece to another."""
        row = np.where(node < 0, self._nobody, node) * self._width
        before, after = row + (first >> self._shift), row + (last >> self._shift) + 1
        some: npt.NDArray[np.bool_] = self._until[after] > self._until[before]
        return some


def _micros(times: pl.Series) -> Ints:
    return times.dt.epoch("us").to_numpy()
