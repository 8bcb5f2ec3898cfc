"""Read the event log of a run: every whole line as a record, what is broken counted, never fatal."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.values import SCHEMA_VERSION, AnyEvent, Record, Stamp

_STAMP = msgspec.json.Decoder(Stamp)
_EVENT = msgspec.json.Decoder(AnyEvent)


class EventLogContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run directory's event logs hold."""

    records: list[Record]
    cut: int = 0
    """Last lines without an end: their writer died while writing."""
    broken: list[str] = []
    """Other lines that cannot be read, as ``file:line: why``."""


def read_run(folder: Path) -> EventLogContent:
    """Read all event logs of a run directory, node by node."""
    files = sorted(folder.glob("events*.jsonl"), key=lambda file: (len(file.name), file.name))
    if not files:
        raise InputError(f"{folder}: no events.jsonl in it, expected a run directory")
    parts = [read_events(file) for file in files]
    return EventLogContent(
        records=[record for part in parts for record in part.records],
        cut=sum(part.cut for part in parts),
        broken=[line for part in parts for line in part.broken],
    )


def read_events(file: Path) -> EventLogContent:
    """Read one event log; raise only when the file itself cannot be read."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    lines = data.split(b"\n")
    rest = lines.pop()
    records, broken = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(decode_line(line))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            broken.append(f"{file.name}:{number}: {error}")
    return EventLogContent(records=records, cut=1 if rest else 0, broken=broken)


def decode_line(line: bytes | msgspec.Raw) -> Record:
    """Return the event of one line; raise ``ValueError`` (or ``RecursionError``) where it is none."""
    stamp = _STAMP.decode(line)
    if stamp.schema > SCHEMA_VERSION:
        raise ValueError(f"schema is {stamp.schema}, expected at most {SCHEMA_VERSION}")
    return Record(stamp=stamp, event=_EVENT.decode(line))
