"""A report as Markdown: the same words, with tables, and without the picture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.serve import markdown
from holdfast.serve.pageparts import printable
from holdfast.serve.report.blocks import (
    Block,
    Cards,
    Code,
    Frame,
    Grid,
    Heading,
    Items,
    Notice,
    Paragraph,
    Picture,
)

MARK = "<!-- holdfast report -->"
"""By which a file is known to be a report, and may be written anew."""
_MOST_ITEMS = 60
_LIST = re.compile(r"^(\d*)\\(?=[.)+-])")


def to_markdown(title: str, blocks: Iterable[Block]) -> str:
    """Return the text."""
    parts = [MARK, f"# {_inside(title)}", *map(_write, blocks)]
    return printable("\n\n".join(part for part in parts if part) + "\n")


def _write(block: Block) -> str:
    match block:
        case Heading(text=text):
            return f"## {_inside(text)}"
        case Paragraph(text=text, kind="next"):
            return f"**Next step.** {markdown.words(text, 2000)}"
        case Paragraph(text=text) | Picture(words=text):
            return markdown.words(text, 2000)
        case Cards(figures=figures):
            return _table(("", "", ""), figures, 0)
        case Grid(names=names, rows=rows, numbers=numbers):
            return _table(names, rows, numbers)
        case Items(title=title, lines=lines):
            head = [f"**{markdown.words(title)}**\n"] if title else []
            return "\n".join([*head, *_listed(lines)])
        case Notice(title=title, lines=lines):
            return "\n".join([f"**{markdown.words(title)}**\n", *_listed(lines)])
        case Code(title=title, lines=lines):
            return f"{markdown.words(title)}:\n\n{markdown.block(lines)}"
        case Frame(title=title, parts=parts):
            inside = [_write(part) for part in parts]
            return "\n\n".join([f"### {_inside(title)}", *inside])


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    head, rule, *lines = markdown.table(names, [list(map(_inside, row)) for row in rows]).splitlines()
    return "\n".join([head, rule if numbers else rule.replace("---:", "---"), *lines])


def _inside(text: str) -> str:
    """Return words for a heading or a cell, where a number at the beginning makes no list."""
    return _LIST.sub(r"\1", markdown.words(text))


def _listed(lines: tuple[str, ...]) -> list[str]:
    shown = [f"- {markdown.words(line)}" for line in lines[:_MOST_ITEMS]]
    return shown + [f"- and {len(lines) - _MOST_ITEMS:,} more"] * (len(lines) > _MOST_ITEMS)
