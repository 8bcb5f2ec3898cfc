"""Texts of unknown origin as Markdown that means nothing but the text: words, code, blocks and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.serve.pageparts import clip

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
"""What could begin or end something; an underscore within a word cannot."""
_OPENING = re.compile(r"^(?:(\d{1,9})(?=[.)])|(?=[-+#=]))")
_TICKS = re.compile(r"`+")


def words(text: str, most: int = 400) -> str:
    """Return a text as plain words on one line."""
    line = _SPECIAL.sub(lambda match: "\\" + match[0], clip(" ".join(text.split()), most))
    return _OPENING.sub(lambda match: f"{match[1] or ''}\\", line)


def code(text: str, most: int = 300) -> str:
    """Return a text as code within a line: between more backticks than it has itself."""
    line = clip(" ".join(text.split()), most) or " "
    fence = "`" * (1 + _longest(line))
    room = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{room}{line}{room}{fence}"


def block(lines: Iterable[str], language: str = "text", most: int = 200) -> str:
    """Return lines as a block of code; none of them can end it."""
    body = [clip(" ".join(line.splitlines()), most) for line in lines]
    fence = "`" * max(3, 1 + _longest("\n".join(body)))
    return "\n".join([f"{fence}{language}", *body, fence])


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown already, and a bar within one does not end it."""
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    # Cells are cut before code is found, so that a bar in code has to be escaped too.
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _longest(text: str) -> int:
    return max((len(match) for match in _TICKS.findall(text)), default=0)
