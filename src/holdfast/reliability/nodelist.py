"""Slurm's short way to write the names of nodes: ``gpu[001-004,007],login1``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.reliability.told import shown

MOST_NODES = 100_000
"""More names than any cluster has; a range that is longer is a slip, or an attack on our memory."""
_NOBODY = frozenset({"", "none assigned", "(null)", "none", "n/a", "null"})
_PART = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand(text: str, *, most: int = MOST_NODES) -> list[str]:
    """Return the names of a list in its order; raise ValueError, with the reason, if it is none."""
    if is_nobody(text):
        return []
    names: list[str] = []
    for item in _items(text.strip()):
        names += _expand_item(item, most - len(names))
        if len(names) > most:
            raise ValueError(f"{shown(text)} names more than {most} nodes")
    return names


def is_nobody(text: str) -> bool:
    """Say whether a list of nodes is one of Slurm's words for an empty one."""
    return text.strip().lower() in _NOBODY


def _items(text: str) -> Iterator[str]:
    """Yield what stands between the commas that are not inside of brackets."""
    depth, start = 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"{shown(text)} has brackets that do not match")
        if char == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if depth:
        raise ValueError(f"{shown(text)} has a bracket that is not closed")
    yield text[start:]


def _expand_item(item: str, most: int) -> list[str]:
    """Return the names of ``rack[1-2]node[01-04]``: the last bracket counts fastest."""
    names = [""]
    if not item.strip() or re.search(r"\s", item.strip()):
        raise ValueError(f"{shown(item)} is no name of a node")
    for word, ranges in _PART.findall(item.strip()):
        numbers = _numbers(ranges, most) if ranges or f"{word}[]" in item else [""]
        if len(names) * len(numbers) > most:
            raise ValueError(f"{shown(item)} names more than {most} nodes")
        names = [name + word + number for name in names for number in numbers]
    return names


def _numbers(ranges: str, most: int) -> list[str]:
    """Return the numbers of ``001-004,007``, as wide as they are written."""
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{shown(part)} is no range of numbers")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{shown(part)} is a range that ends before it begins")
        if last - first + 1 > most - len(numbers):
            raise ValueError(f"{shown(part)} is more than {most} nodes")
        width = len(match[1])
        numbers += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return numbers
