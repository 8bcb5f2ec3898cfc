"""Follow a file of lines that others append to: whole lines only, from where the last reading ended.

The file may not be there yet, end in mid-line, or have been replaced by a shorter one; then it is read from
its beginning, and whoever takes the lines has to know which ones it has already.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

_CHUNK_BYTES = 1 << 18
_MOST_SKIPPED_BYTES = 64 << 20
"""Of a line without an end: a file of holes may have more than can be read in a day."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where a file was read."""

    offset: int = 0
    """In bytes; at the beginning of a line, unless one is far too long."""
    inode: int = 0
    """Of the file; 0: none was seen yet."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line, without its end."""

    data: bytes
    place: Place
    """After it."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What was read at once."""

    lines: list[Line]
    place: Place
    """After the last of them."""
    too_long: int = 0
    """Lines that were left out because of their length."""
    is_all: bool = True
    """Whether no whole line was left to be read."""


def read_on(file: Path, place: Place, *, most_lines: int, most_bytes: int, longest: int) -> Piece:
    """Return the next lines: at least one where there is any, else no more than the two limits allow.

    A line of more than ``longest`` bytes is left out.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # Not there yet, or not for us; it may be later.
        return Piece(lines=[], place=place)
    try:
        found = os.fstat(fd)
        if place.inode != found.st_ino or found.st_size < place.offset:
            place = Place(inode=found.st_ino)
        if found.st_size == place.offset:
            return Piece(lines=[], place=place)
        return _Reading(fd, place).read(most_lines=most_lines, most_bytes=most_bytes, longest=longest)
    except OSError:
        return Piece(lines=[], place=place)
    finally:
        os.close(fd)


class _Reading:
    """One pass over what has been added."""

    def __init__(self, fd: int, place: Place) -> None:
        self._fd = fd
        self._place = place
        self._lines: list[Line] = []
        self._bytes = 0

    def read(self, *, most_lines: int, most_bytes: int, longest: int) -> Piece:
        too_long = 0
        rest, end = b"", self._place.offset
        size = 0
        """Of the line that has begun, where it is too long to be kept."""
        while chunk := os.pread(self._fd, _CHUNK_BYTES, end):
            end += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            for data in whole:
                size, length = 0, size + len(data)
                if length > longest:
                    too_long += 1
                    self._advance(length)
                elif self._lines and (len(self._lines) >= most_lines or self._bytes + length > most_bytes):
                    return self._piece(too_long, is_all=False)
                else:
                    self._advance(length)
                    self._bytes += length
                    self._lines.append(Line(data=data, place=self._place))
            if size + len(rest) > longest:
                size, rest = size + len(rest), b""
            if size > _MOST_SKIPPED_BYTES:  # What is left of it will be a line that nobody understands.
                self._place = msgspec.structs.replace(self._place, offset=end)
                return self._piece(too_long + 1, is_all=False)
        return self._piece(too_long, is_all=True)

    def _advance(self, length: int) -> None:
        self._place = msgspec.structs.replace(self._place, offset=self._place.offset + length + 1)

    def _piece(self, too_long: int, *, is_all: bool) -> Piece:
        return Piece(lines=self._lines, place=self._place, too_long=too_long, is_all=is_all)
