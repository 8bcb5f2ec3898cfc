"""What a guard wants of the workers of its job, and what became of it: small files beside the rings.

The guard of node 0 wishes. Its launcher, which has the hub, grants to the workers of a pipeline; rank 0 does
to those who share out whole micro-batches. The launcher also tells who is there at all. Each file is written
by one of them, whole or not at all, and holds the last word only.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.job.files import replace_file
from holdfast.membership import Arranged

_WISH, _GRANTED, _CREW = "wish.json", "granted.json", "crew.json"


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """The generation that is in force."""

    generation: int
    wish: int
    """The last wish that it follows."""
    version: int
    """How many updates had been applied when it began."""
    places: dict[int, int]
    """What each rank holds."""
    dp: int
    pp: int
    microbatches: int
    """Of each pipeline in a step."""
    is_shared_by_stage: bool
    """Whether a micro-batch may go to any worker of a stage; else it goes through one pipeline."""


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part in an attempt of a job."""

    attempt: int
    nodes: list[int]
    """The node of each rank."""
    spares: int = 0
    """Nodes that stand by."""
    host: int | None = None
    """The node at which the others meet, which cannot be done without; None: not known."""
    started_s: float
    """When its workers were started, by the clock of node 0."""


_ARRANGED_WORD = msgspec.json.Decoder(Arranged)
_GRANTED_WORD = msgspec.json.Decoder(Granted)
_CREW_WORD = msgspec.json.Decoder(Crew)


def write_wish(folder: Path, wish: Arranged) -> bool:
    """Leave a wish for the launcher; False if that could not be written."""
    return _write(folder / _WISH, wish)


def read_wish(folder: Path) -> Arranged | None:
    """Return the last wish, None where there is none."""
    return _read(folder / _WISH, _ARRANGED_WORD)


def write_granted(folder: Path, granted: Granted) -> bool:
    """Leave word of a generation for the guard."""
    return _write(folder / _GRANTED, granted)


def read_granted(folder: Path) -> Granted | None:
    """Return what is in force, None before anything is."""
    return _read(folder / _GRANTED, _GRANTED_WORD)


def write_crew(folder: Path, crew: Crew) -> bool:
    """Leave word of who is there for the guard."""
    return _write(folder / _CREW, crew)


def read_crew(folder: Path) -> Crew | None:
    """Return who is there, None before anybody has said so."""
    return _read(folder / _CREW, _CREW_WORD)


def _write(path: Path, word: Arranged | Granted | Crew) -> bool:
    try:
        replace_file(path, msgspec.json.encode(word))
    except OSError:  # Nothing is changed then; who waits for it gives up.
        return False
    return True


Word = TypeVar("Word", Arranged, Granted, Crew)


def _read(path: Path, word: msgspec.json.Decoder[Word]) -> Word | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return word.decode(path.read_bytes())
    return None
