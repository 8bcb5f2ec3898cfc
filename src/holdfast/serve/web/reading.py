"""What is new in one run directory, of all nodes that wrote there, as shipments."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.observe.tail import Piece, Place, read_on
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary

LOG_NAME = re.compile(r"events(?:\.node([0-9]{1,6}))?\.jsonl")
SUMMARIES = "summaries.jsonl"
_MOST_LINES = 2000
_MOST_BYTES = 1 << 20
_LONGEST = 1 << 20
_SUMMARY = msgspec.json.Decoder(Summary)

Places = Mapping[str, Place]
"""Up to where each file of a run directory was read, by its name."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What was read at one look."""

    shipments: list[Shipment]
    places: Places
    """After it."""
    is_all: bool = True
    """Whether nothing was left."""


def read_news(folder: Path, run: Run, places: Places) -> News:
    """Return a bounded part of what was written since."""
    events: dict[int, list[msgspec.Raw]] = {}
    after, is_all = dict(places), True
    for name, node in _logs(folder):
        piece = _read(folder / name, places.get(name, Place()))
        events[node] = [msgspec.Raw(line.data) for line in piece.lines if _is_object(line.data)]
        after[name], is_all = piece.place, is_all and piece.is_all
    # Rows are read when the events before them were: a step means little before its attempt.
    rows: dict[int, list[Summary]] = {}
    if is_all:
        piece = _read(folder / SUMMARIES, places.get(SUMMARIES, Place()))
        rows = _rows_by_node(piece)
        after[SUMMARIES], is_all = piece.place, piece.is_all
    shipments = [
        Shipment(run=run, node=node, events=events.get(node, []), summaries=rows.get(node, []))
        for node in sorted(set(events) | set(rows))
        if events.get(node) or rows.get(node)
    ]
    return News(shipments=shipments, places=after, is_all=is_all)


def _logs(folder: Path) -> list[tuple[str, int]]:
    """Return the event logs of a run directory, and of which nodes they are."""
    found = [(name, LOG_NAME.fullmatch(name)) for name in _names(folder)]
    return sorted(((name, int(match[1] or 0)) for name, match in found if match), key=lambda each: each[1])


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted.
    return []


def _read(file: Path, place: Place) -> Piece:
    # A link could lead to a file that is none of ours, and its lines would end up in answers.
    try:
        is_regular = stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        is_regular = False
    if not is_regular:
        return Piece(lines=[], place=place)
    return read_on(file, place, most_lines=_MOST_LINES, most_bytes=_MOST_BYTES, longest=_LONGEST)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _rows_by_node(piece: Piece) -> dict[int, list[Summary]]:
    rows: dict[int, list[Summary]] = {}
    for line in piece.lines:
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            row = _SUMMARY.decode(line.data)
            rows.setdefault(row.node, []).append(row)
    return rows
