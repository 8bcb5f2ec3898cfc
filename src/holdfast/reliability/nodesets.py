"""Lists of nodes as numbers: of each of many rows, which of all names its list has.

Most lists are one name or one range, and a range is a stretch of the numbered nodes: only the others have to
be written out name by name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from holdfast.reliability.nodelist import MOST_NODES, expand

Ints = npt.NDArray[np.int64]
_RANGE = r"^(?<name>[^\[\],\s]+)\[(?<first>[0-9]{1,9})-(?<last>[0-9]{1,9})\]$"
_KEPT = 1 << 16
"""Lists of nodes that are remembered."""


@functools.lru_cache(_KEPT)
def nodes_of(text: str | None) -> tuple[str, ...]:
    """Return the names in a list of nodes; one that cannot be read has none.

    It is remembered, since every part of a report asks for the same; the names are, too, so that a thousand
    lists with a node share its name.
    """
    try:
        return tuple(map(sys.intern, expand(text or "")))
    except ValueError:  # Readers count and show such lists; here an attempt without known nodes is one more.
        return ()


def find_places(nodes: pl.Series, known: pl.Series) -> Ints:
    """Return for each name its place among the known ones; -1: it is none of them."""
    places = np.arange(len(known))
    return nodes.replace_strict(known, places, default=-1, return_dtype=pl.Int64).to_numpy()


class NodeSets:
    """Lists of nodes, one for each of many spans of time."""

    def __init__(self, lists: pl.Series) -> None:
        coded = lists.cast(pl.Categorical)
        texts = coded.unique()
        self._lengths: Ints = np.zeros(len(texts), np.int64)
        self._begins: Ints = np.zeros(len(texts), np.int64)
        """Of each text: where its nodes are among the names."""
        self.names = self._lay_out(texts.cast(pl.String))
        """Of all nodes, each once or several times."""
        numbers = texts.to_physical().to_numpy()
        which = np.zeros(int(numbers.max(initial=0)) + 1, np.uint32)
        which[numbers] = np.arange(len(texts))
        self._text = which[coded.to_physical().to_numpy()]

    def nodes(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return for some of the spans each with each of its nodes: which span, which of the names."""
        text = self._text[first:last]
        counts = self._lengths[text]
        span = np.repeat(np.arange(len(text)), counts)
        # The n-th node of a span is at the beginning of its list plus n.
        skipped = self._begins[text] - (np.cumsum(counts) - counts)
        return span + first, np.arange(len(span)) + skipped[span]

    def _lay_out(self, texts: pl.Series) -> pl.Series:
        stretches: list[pl.Series] = []
        size = 0
        is_done = np.zeros(len(texts), np.bool_)
        for ranges, names in _by_name(texts):
            at = ranges["_text"].to_numpy()
            self._begins[at] = ranges["first"].to_numpy() + size
            self._lengths[at] = ranges["length"].to_numpy()
            is_done[at] = True
            stretches.append(names)
            size += len(names)
        at = np.flatnonzero(~is_done)
        parts = [nodes_of(text) for text in texts[at]]
        self._lengths[at] = [len(part) for part in parts]
        self._begins[at] = size + np.cumsum(self._lengths[at]) - self._lengths[at]
        others = pl.Series([name for part in parts for name in part], dtype=pl.String)
        return pl.concat([*stretches, others]).alias("node").rechunk()


def _by_name(texts: pl.Series) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Yield the texts that are ranges of one name, with all nodes of that name from the first to the last.

    Columns: _text (which one), first (among the nodes), length.
    """
    parts = pl.col("text").str.extract_groups(_RANGE).struct
    read = texts.to_frame("text").select(
        name=parts.field("name"),
        width=parts.field("first").str.len_bytes(),
        first=parts.field("first").cast(pl.Int64),
        last=parts.field("last").cast(pl.Int64),
    )
    ranges = read.with_row_index("_text").with_columns(length=pl.col("last") - pl.col("first") + 1)
    ranges = ranges.filter(pl.col("length").is_between(1, MOST_NODES))
    for (name, width), some in ranges.group_by("name", "width", maintain_order=True):
        begin, end = int(some["first"].min()), int(some["last"].max())  # type: ignore[arg-type]
        if end - begin < MOST_NODES:  # Else there are gaps, and more names than a cluster has.
            names = [f"{name}{number:0{width}d}" for number in range(begin, end + 1)]
            yield some.with_columns(pl.col("first") - begin), pl.Series(names, dtype=pl.String)
