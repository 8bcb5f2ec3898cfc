"""What is new in one run directory, of all nodes that wrote there, as shipments."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.observe.tail import Piece, Place, read_on
from holdfast.serve.web.inside import open_file, open_folder, path_of
from holdfast.serve.web.whose import Whose
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary

LOG_NAME = re.compile(r"events(?:\.node([0-9]{1,6}))?\.jsonl")
SUMMARIES = "summaries.jsonl"
MOST_BYTES = 4 << 20
"""Of one look at a run directory, however many nodes write there."""
_MOST_LINES = 2000
_MOST_FILE_BYTES = 1 << 20
_LONGEST = 1 << 20
_SUMMARY = msgspec.json.Decoder(Summary)

Places = Mapping[str, Place]
"""Up to where each file of a run directory was read, by its name."""


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """A shipment, and how much its lines take up."""

    shipment: Shipment
    size_bytes: int


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What was read at one look."""

    parcels: list[Parcel]
    places: Places
    """After it."""
    is_all: bool = True
    """Whether nothing was left."""

    @property
    def size_bytes(self) -> int:
        """How much all of it takes up."""
        return sum(parcel.size_bytes for parcel in self.parcels)


def read_news(run_dir: Path, whose: Whose, places: Places, *, most_bytes: int = MOST_BYTES) -> News:
    """Return a part of what was written since: about so many bytes, and one line more at most."""
    with open_folder(run_dir) as folder:
        if folder is None:
            return News(parcels=[], places=places)
        look = _Look(folder, places, most_bytes)
        sorting = _Sorting(whose)
        for name, node in _logs(folder):
            sorting.add_events(node, look.read(name))
        # Rows are read when the events before them were: a step means little before its attempt.
        if look.is_all:
            sorting.add_rows(look.read(SUMMARIES))
    return News(parcels=sorting.parcels(), places=look.places, is_all=look.is_all)


class _Look:
    """Reads on in one file after the other, until it was enough."""

    def __init__(self, folder: int, places: Places, most_bytes: int) -> None:
        self._folder = folder
        self._left = most_bytes
        self.places = dict(places)
        self.is_all = True

    def read(self, name: str) -> list[bytes]:
        if self._left <= 0:
            self.is_all = False
            return []
        piece = self._read_on(name, self.places.get(name, Place()))
        lines = [line.data for line in piece.lines]
        self.places[name] = piece.place
        self.is_all = self.is_all and piece.is_all
        self._left -= sum(map(len, lines))
        return lines

    def _read_on(self, name: str, place: Place) -> Piece:
        # A link could lead to a file that is none of ours, and its lines would end up in answers.
        with open_file(self._folder, name) as fd:
            if fd is None:
                return Piece(lines=[], place=place)
            return read_on(
                path_of(fd),
                place,
                most_lines=_MOST_LINES,
                most_bytes=min(_MOST_FILE_BYTES, self._left),
                longest=_LONGEST,
            )


class _Sorting:
    """Sorts lines by who wrote them, and of which run."""

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        self._drafts: dict[tuple[bool, int], _Draft] = {}

    def add_events(self, node: int, lines: Iterable[bytes]) -> None:
        for line in lines:
            at = _time_of(line)
            if at is not None:
                self._draft(node, at, line).events.append(msgspec.Raw(line))

    def add_rows(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                row = _SUMMARY.decode(line)
                self._draft(row.node, row.at, line).rows.append(row)

    def parcels(self) -> list[Parcel]:
        return [self._drafts[place].parcel(place[1]) for place in sorted(self._drafts)]

    def _draft(self, node: int, at: str, line: bytes) -> _Draft:
        run = self._whose.owner(at)
        place = run is self._whose.run, node
        draft = self._drafts.get(place)
        if draft is None:
            draft = self._drafts[place] = _Draft(run)
        draft.size_bytes += len(line)
        return draft


class _Draft:
    """What goes into one shipment."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.events: list[msgspec.Raw] = []
        self.rows: list[Summary] = []
        self.size_bytes = 0

    def parcel(self, node: int) -> Parcel:
        shipment = Shipment(run=self._run, node=node, events=self.events, summaries=self.rows)
        return Parcel(shipment=shipment, size_bytes=self.size_bytes)


def _logs(folder: int) -> list[tuple[str, int]]:
    """Return the event logs of a run directory, and of which nodes they are."""
    found = [(name, LOG_NAME.fullmatch(name)) for name in _names(folder)]
    return sorted(((name, int(match[1] or 0)) for name, match in found if match), key=lambda each: each[1])


def _names(folder: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _time_of(line: bytes) -> str | None:
    """Return when an event was, empty where it does not say; None where it is none."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return str(found.get("at", "")) if isinstance(found, dict) else None
