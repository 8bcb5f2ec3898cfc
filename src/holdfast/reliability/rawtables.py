"""Files with rows and named columns, whatever their form, as text: pipes, CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec
import polars as pl

from holdfast.errors import InputError
from holdfast.reliability.delimited import Delimited
from holdfast.reliability.told import ROW, Frame, Tally, shown

_MOST_HEADER = 1 << 20
_QUOTING = (b",", b";", b"\t")
"""Delimiters that come with quoted cells."""
_DELIMITER = re.compile(rb'"?[A-Za-z_][\w ./%()-]*"?([^\w\s"./%()-]+|\t)')

Columns = Mapping[str, str]
"""What we call a column, and what the file does."""


class RawTable(Protocol):
    """A file whose columns are known and whose rows are not read yet."""

    names: list[str]
    """Of its columns, in small letters."""

    def frames(self, columns: Columns) -> Iterator[Frame]:
        """Yield how to read each piece: the columns asked for, as text, with each row's line."""
        ...


class Header(NamedTuple):
    """The first line of a text that is not blank."""

    text: bytes
    rest: bytes
    """What follows it."""
    line: int


def open_table(stream: BinaryIO, place: str, *, expected: str = "the names of columns") -> RawTable:
    """Return the table in a file, by its first bytes; raise InputError if it has no header."""
    head = stream.read(_MOST_HEADER)
    if head.startswith(b"PAR1"):
        return _Parquet(head + stream.read(), place)
    if b"\0" in head:
        raise InputError(f"{place}: is not text, expected a table with a header")
    if head.lstrip()[:1] == b"{":
        return _Rows.of_json_lines(head + stream.read(), place)
    header = find_header(head)
    match = _DELIMITER.match(header.text)
    if match is None:
        said = header.text.decode(errors="replace")
        raise InputError(f"{place}, row {header.line}: is {shown(said)}, expected {expected}")
    names = plain_names(cell.decode(errors="replace") for cell in header.text.split(match[1]))
    if match[1] in _QUOTING:
        data = header.rest + stream.read()
        if b'"' in data or b'"' in header.text:
            return _Rows.of_quoted(header._replace(rest=data), match[1].decode(), place)
        return Delimited(io.BytesIO(data), b"", match[1], names, header.line + 1)
    return Delimited(stream, header.rest, match[1], names, header.line + 1)


def find_header(head: bytes) -> Header:
    """Return the first line that is not blank, without a byte order mark."""
    body = head.removeprefix(b"\xef\xbb\xbf")
    blank = len(body) - len(body.lstrip(b"\r\n"))
    text, _, rest = body[blank:].partition(b"\n")
    return Header(text.removesuffix(b"\r"), rest, body[:blank].count(b"\n") + 1)


def plain_names(names: Iterable[str]) -> list[str]:
    """Return names of columns as they are compared: in small letters, without space or quotes around them."""
    return [name.strip().strip('"').strip().lower() for name in names]


class _Rows:
    """Rows that are in memory already, each with the number of its line."""

    def __init__(
        self, names: list[str], rows: list[tuple[int, dict[str, str | None]]], broken: list[_Told]
    ) -> None:
        self.names = names
        self._rows = rows
        self._broken = broken

    def frames(self, columns: Columns) -> Iterator[Frame]:
        """Yield how to read all of them at once."""
        yield partial(self._read, columns)

    def _read(self, columns: Columns, tally: Tally) -> pl.DataFrame:
        tally.rows += len(self._rows) + len(self._broken)
        for row, why in self._broken:
            tally.tell(row, why)
        lines = pl.Series(ROW, [row for row, _ in self._rows], dtype=pl.UInt32)
        return pl.DataFrame(
            [lines]
            + [
                pl.Series(ours, [cells.get(theirs) for _, cells in self._rows], dtype=pl.String)
                for ours, theirs in columns.items()
            ]
        )

    @classmethod
    def of_quoted(cls, header: Header, delimiter: str, place: str) -> _Rows:
        """Return the rows of a CSV with quoted cells; InputError if its header cannot be read."""
        try:
            names = plain_names(next(csv.reader([header.text.decode(errors="replace")], delimiter=delimiter)))
        except csv.Error as error:
            raise InputError(f"{place}, row {header.line}: {error}, expected the names of columns") from error
        lines = io.StringIO(header.rest.decode(errors="replace"), newline="")
        reader = csv.reader(lines, delimiter=delimiter)
        rows: list[tuple[int, dict[str, str | None]]] = []
        broken: list[_Told] = []
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return cls(names, rows, broken)
            except csv.Error as error:
                broken.append((reader.line_num + header.line, str(error)))
                continue
            if len(cells) == len(names):
                # Of two columns with one name the first counts, as in the other forms.
                rows.append((reader.line_num + header.line, dict(zip(names[::-1], cells[::-1], strict=True))))
            elif cells:
                why = f"has {len(cells)} cells, expected {len(names)}"
                broken.append((reader.line_num + header.line, why))

    @classmethod
    def of_json_lines(cls, data: bytes, place: str) -> _Rows:
        """Return the objects of JSON lines; InputError if there is none."""
        rows: list[tuple[int, dict[str, str | None]]] = []
        broken: list[_Told] = []
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                cells = _OBJECT.decode(line.decode(errors="replace"))
            except (msgspec.DecodeError, RecursionError) as error:
                broken.append((number, f"{error}, expected one JSON object"))
            else:
                rows.append((number, {name.lower(): _as_text(cell) for name, cell in cells.items()}))
        if not rows:
            raise InputError(f"{place}, row {broken[0][0]}: {broken[0][1]}")
        names = dict.fromkeys(name for _, cells in rows for name in cells)
        return cls(list(names), rows, broken)


class _Parquet:
    """A table that has types already; they are made text, so that all files are judged by the same rules."""

    def __init__(self, data: bytes, place: str) -> None:
        try:
            self._table = pl.read_parquet(io.BytesIO(data))
        except (Exception, pl.exceptions.PanicException) as error:  # Its errors share no base class.
            words = str(error).splitlines() or [type(error).__name__]
            raise InputError(f"{place}: cannot be read as Parquet: {words[0]}") from error
        self.names = plain_names(self._table.columns)

    def frames(self, columns: Columns) -> Iterator[Frame]:
        """Yield how to read all of it at once."""
        yield partial(self._read, columns)

    def _read(self, columns: Columns, tally: Tally) -> pl.DataFrame:
        tally.rows += self._table.height
        texts = [
            _column_text(self._table.to_series(self.names.index(theirs))).alias(ours)
            for ours, theirs in columns.items()
        ]
        return pl.DataFrame(texts).with_row_index(ROW, offset=1)


_Told = tuple[int, str]
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def _as_text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    return msgspec.json.encode(cell).decode()


def _column_text(column: pl.Series) -> pl.Series:
    """Return a column as text; times keep their zone."""
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        if dtype.time_zone is not None:
            return column.dt.convert_time_zone("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ")
        return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.f")
    try:
        return column.cast(pl.String, strict=False)
    except pl.exceptions.PolarsError:  # Lists, structs and bytes have no text; nobody reads them here.
        return pl.Series(column.name, [None] * len(column), dtype=pl.String)
