"""Lines of cells that are never quoted, as ``sacct -P`` writes them, as tables of text.

They come in pieces, so that a file of gigabytes needs little more memory than what is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO

import polars as pl

from holdfast.reliability.mend import Block, mend, split_last
from holdfast.reliability.told import ROW, Frame, Tally

PIECE = 64 << 20
"""Bytes that are looked at together: with fewer, calls of the parser and their threads take as long."""
_MOST_HELD = 1 << 24
"""Longer than any cell: so much without a row is not held back for its rest."""
_INNER = b"\x1f"
"""Stands for a delimiter of several bytes: the unit separator is in nobody's names."""
_FREE = frozenset(
    {"comment", "admincomment", "systemcomment", "submitline", "jobname", "workdir", "reason", "text"}
)
"""Columns that may hold line breaks."""


class Delimited:
    """The lines after a header that has been read."""

    def __init__(self, stream: BinaryIO, rest: bytes, delimiter: bytes, names: list[str], line: int) -> None:
        """Take what has been read of the stream already, and the number of the line that comes first."""
        self.names = names
        self._stream, self._rest, self._line = stream, rest, line
        self._asked = delimiter
        self._delimiter = delimiter if len(delimiter) == 1 and delimiter.isascii() else _INNER

    def frames(self, columns: Mapping[str, str]) -> Iterator[Frame]:
        """Yield how to read one piece after the other."""
        line, count = self._line, len(self.names) - 1
        for number, piece in enumerate(self._pieces(count)):
            yield partial(self._read, piece, line, columns, follows_row=number > 0)
            line += piece.count(b"\n")

    def _read(
        self, piece: bytes, line: int, columns: Mapping[str, str], tally: Tally, *, follows_row: bool
    ) -> pl.DataFrame:
        """Return the rows of a piece that begins on a line."""
        count, is_free = len(self.names) - 1, self.names[-1] in _FREE
        block = mend(piece, self._delimiter, count, has_free_end=is_free, follows_row=follows_row)
        tally.rows += len(block.lines) + len(block.broken)
        for place, marks in block.broken:
            tally.tell(line + place, f"has {marks + 1} cells, expected {count + 1}")
        if not len(block.lines):
            return pl.DataFrame(schema={ROW: pl.UInt32, **dict.fromkeys(columns, pl.String)})
        return self._without_headers(self._parse(block, line, columns), columns, tally)

    def _pieces(self, count: int) -> Iterator[bytes]:
        """Yield the file in pieces that end where a row does."""
        held, rest = b"", self._rest
        while more := self._stream.read(PIECE):
            cut = more.rfind(b"\n") + 1
            if not cut:
                rest += more
                continue
            held += self._normalise(b"".join((rest, memoryview(more)[:cut])))
            rest = more[cut:]
            cut = split_last(held, self._delimiter, count)
            if not cut and len(held) > _MOST_HELD:  # Nothing fits, nor will it with more of the same.
                cut = len(held)
            yield held[:cut]
            held = held[cut:]
        last = held + self._normalise(rest)
        if last:
            yield last if last.endswith(b"\n") else last + b"\n"

    def _normalise(self, data: bytes) -> bytes:
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if self._delimiter == self._asked:
            return data
        return data.replace(_INNER, b" ").replace(self._asked, _INNER)

    def _parse(self, block: Block, line: int, columns: Mapping[str, str]) -> pl.DataFrame:
        places = {ours: self.names.index(theirs) for ours, theirs in columns.items()}
        wanted = sorted(set(places.values()))
        table = pl.read_csv(
            block.data,
            has_header=False,
            separator=self._delimiter.decode(),
            quote_char=None,
            columns=wanted,
            infer_schema=False,
            encoding="utf8" if block.data.isascii() else "utf8-lossy",  # The first is faster.
        )
        table.columns = [str(place) for place in wanted]
        lines = pl.Series(ROW, block.lines + line).cast(pl.UInt32)
        return table.select(lines, *(pl.col(str(place)).alias(ours) for ours, place in places.items()))

    def _without_headers(self, table: pl.DataFrame, columns: Mapping[str, str], tally: Tally) -> pl.DataFrame:
        """Leave out headers in the middle, which files have that were put together of several."""
        ours, theirs = next(iter(columns.items()))
        as_long = pl.when(pl.col(ours).str.len_bytes() == len(theirs.encode())).then(pl.col(ours))
        is_header = as_long.str.to_lowercase() == theirs
        kept = table.filter(is_header.fill_null(False).not_())
        tally.left_out += table.height - kept.height
        return kept
