"""What a report is made of, before it is a page or a text: plain words, nothing escaped."""

from __future__ import annotations

from typing import Literal

import msgspec


class Heading(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Begins a part."""

    text: str


class Paragraph(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A few sentences."""

    text: str
    kind: Literal["plain", "lead", "small", "next"] = "plain"
    """``next``: what to do now."""


class Cards(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Figures: name, value, remark."""

    figures: tuple[tuple[str, str, str], ...]


class Grid(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A table; the first column is words, the last ones of ``numbers`` are numbers."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int = 0


class Items(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sentences below each other."""

    title: str = ""
    lines: tuple[str, ...]


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a reader must not overlook."""

    title: str
    lines: tuple[str, ...]


class Code(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Lines of a log or a traceback, as they are."""

    title: str
    lines: tuple[str, ...]


class Picture(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A drawing, and what it shows for those who have only text."""

    svg: str
    label: str
    words: str


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A part with a heading and a border, as of an incident."""

    title: str
    kind: Literal["slow", "death", "hang", "calm"]
    parts: tuple[Part, ...]


Part = Heading | Paragraph | Cards | Grid | Items | Notice | Code | Picture
Block = Part | Frame
