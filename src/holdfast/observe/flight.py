"""Flight Recorder dumps in files and folders, one for each rank of a job that hangs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.observe.files import read_bytes
from holdfast.observe.flightdump import MOST_RANKS, Dump, parse_dump

LARGEST_BYTES = 256 << 20
_EXPECTED = "expected a Flight Recorder dump, JSON or pickle"


def read_dumps(paths: Sequence[Path]) -> list[Dump]:
    """Return the dumps in files and folders, by rank."""
    dumps: dict[int, tuple[Path, Dump]] = {}
    for path in _files(paths):
        dump = read_dump(path)
        if dump.rank in dumps:
            raise InputError(
                f"{path}: is of rank {dump.rank}, as is {dumps[dump.rank][0]}; expected one dump per rank"
            )
        dumps[dump.rank] = path, dump
    return [dump for _, (_, dump) in sorted(dumps.items(), key=lambda item: item[0])]


def read_dump(path: Path) -> Dump:
    """Return what is in a file; whatever is wrong with it is one line."""
    rank = rank_of(path)
    if rank is None:
        raise InputError(f"{path}: no rank in the name, expected one like _dump_3 or trace_rank_3.json")
    data = read_bytes(path, most=LARGEST_BYTES)
    try:
        return parse_dump(data, rank)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: {_EXPECTED}: {error}") from error


def rank_of(path: Path) -> int | None:
    """Return the rank that a name ends in, or says with the word; None if there is none."""
    stem = re.sub(r"\.(json|pickle|pkl|bin)$", "", path.name)
    match = re.search(r"rank[_-]?(\d{1,7})(?!\d)", stem) or re.search(r"(?<!\d)(\d{1,7})$", stem)
    return int(match[1]) if match and int(match[1]) < MOST_RANKS else None


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        try:
            if not path.is_dir():
                path.stat()  # Who is not there at all need not be told what names look like.
                found.append(path)
                continue
            inside = [each for each in sorted(path.iterdir()) if rank_of(each) is not None and each.is_file()]
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        if not inside:
            raise InputError(f"{path}: holds no dumps, expected files like _dump_3 or trace_rank_3.json")
        found += inside
    return found
