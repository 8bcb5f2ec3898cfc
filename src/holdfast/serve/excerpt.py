"""A few lines of the code that a trace names, where the file is on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.serve.casewords import place_of

LARGEST = 2_000_000
_BEFORE, _AFTER = 4, 11
_SOURCES = frozenset({".py", ".pyi", ".pyx"})
"""A trace may name any file: only code is shown to others, never a key or a password."""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Lines around the one that a function's name tells; without lines, why there are none."""

    function: str
    path: str = ""
    lines: list[str] = []
    why: str = ""


def excerpts_of(stack: Sequence[str], most: int) -> list[Excerpt]:
    """Return code of the functions nearest to the one that is meant, of those that tell file and line."""
    named = [name for name in stack if place_of(name) is not None]
    return [read_excerpt(name) for name in named[:most]]


def read_excerpt(function: str) -> Excerpt:
    """Return the code of a function; never raises."""
    place = place_of(function)
    if place is None:
        return Excerpt(function=function, why="its name tells no file")
    file, line = place
    try:
        path = _find(file)
        if path is None:
            return Excerpt(function=function, why="the file is not at hand")
        text = path.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:
        return Excerpt(function=function, why=f"the file cannot be read: {error}")
    if len(text) > LARGEST or b"\0" in text:
        return Excerpt(function=function, why="the file is no text of reasonable size")
    lines = text.decode(errors="replace").splitlines()
    if not 1 <= line <= len(lines):
        return Excerpt(function=function, why=f"the file has {len(lines)} lines: it is another version")
    first = max(1, line - _BEFORE)
    shown = [
        f"{'>' if number == line else ' '}{number:5d}  {lines[number - 1]}"
        for number in range(first, min(len(lines), line + _AFTER - 1) + 1)
    ]
    return Excerpt(function=function, path=str(path), lines=shown)


def _find(file: str) -> Path | None:
    """Return the file: as it is named, or below where modules are found, which torch leaves out of names."""
    tried = [Path(file), *(Path(folder) / file for folder in sys.path if folder)]
    for path in tried:
        real = path.resolve()
        if real.suffix in _SOURCES and real.is_file() and real.stat().st_size <= LARGEST:
            return real
    return None
