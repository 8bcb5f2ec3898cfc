"""Shipments as rows for the database: what can be kept, and why the rest cannot. Pure.

A shipment that is wrong in parts is kept in parts: a guard of another version must not lose its good events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.observe.eventlog import decode_line
from holdfast.serve.store.parts import Latest, Part, fault_of, latest_of, part_of
from holdfast.shipment import SHIPMENT_SCHEMA, Shipment
from holdfast.telemetry import Summary
from holdfast.values import Ordered, Stamp

MOST_EVENT_BYTES = 256 << 10
MOST_WORD = 200
"""Characters of a key or an id."""
MOST_NODE = 1 << 20
MOST_REASONS = 20
"""That are given for one shipment."""
MOST_AHEAD_US = 24 * 3600 * 1_000_000
"""Of the server's clock; a row of the far future would stay the latest for as long."""

_MANY_DIGITS = re.compile(rb"[0-9]{19}")
_MOST_INT = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOST_US = (datetime(2200, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An event to keep."""

    event_id: str
    body: str
    answer: tuple[str, str] | None = None
    """An order, and what came of it."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A summary row to count."""

    at_us: int
    step: int | None
    """The last one in it; None: it tells of none."""
    part: Part
    latest: dict[int, Latest]


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """What one shipment brings."""

    shipment: Shipment
    is_usable: bool = True
    """False: nothing of it can be kept, not even of whom it is."""
    lines: list[Line] = []
    rows: list[Row] = []
    refused: list[str] = []


def read_shipment(shipment: Shipment, now_us: int) -> Incoming:
    """Sort out what can be kept."""
    fault = _fault_of(shipment)
    if fault is not None:
        return Incoming(shipment=shipment, is_usable=False, refused=[fault])
    lines: list[Line] = []
    rows: list[Row] = []
    refused: list[str] = []
    for number, raw in enumerate(shipment.events, start=1):
        try:
            lines.append(_read_event(bytes(raw), shipment.node))
        except (ValueError, RecursionError) as error:
            refused.append(f"event {number}: {error}"[:300])
    for number, row in enumerate(shipment.summaries, start=1):
        try:
            rows.append(_read_row(row, shipment.node, now_us))
        except ValueError as error:
            refused.append(f"summary {number}: {error}"[:300])
    return Incoming(shipment=shipment, lines=lines, rows=rows, refused=_few(refused))


def clean(text: str, most: int = 10_000) -> str:
    """Return a text that every database can keep: no NUL, nothing that is no character, not too long."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def microseconds(at: str) -> int:
    """Return a time as microseconds since 1970; raise where it is none, or does not say of which zone."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise ValueError(f"time is {at[:40]!r}, expected one of ISO 8601") from None
    if moment.tzinfo is None:
        raise ValueError(f"time is {at[:40]!r}, expected one with an offset, such as +00:00")
    at_us = (moment - _EPOCH) // _MICROSECOND
    if not 0 <= at_us < _MOST_US:
        raise ValueError(f"time is {at[:40]!r}, expected one of the years 1970 to 2199")
    return at_us


def iso(at_us: int) -> str:
    """Undo ``microseconds``."""
    return (_EPOCH + at_us * _MICROSECOND).isoformat()


def _fault_of(shipment: Shipment) -> str | None:
    if shipment.schema > SHIPMENT_SCHEMA:
        return f"shipment: schema is {shipment.schema}, expected at most {SHIPMENT_SCHEMA}"
    if not _is_word(shipment.run.key):
        return f"shipment: key is {shipment.run.key[:40]!r}, expected 1 to {MOST_WORD} characters"
    if not 0 <= shipment.node < MOST_NODE:
        return f"shipment: node is {shipment.node}, expected 0 to {MOST_NODE - 1}"
    return None


def _is_word(text: str) -> bool:
    return 0 < len(text) <= MOST_WORD and clean(text) == text


def _read_event(line: bytes, node: int) -> Line:
    if len(line) > MOST_EVENT_BYTES:
        raise ValueError(f"{len(line)} bytes, expected at most {MOST_EVENT_BYTES}")
    record = decode_line(line)
    _check_stamp(record.stamp, node)
    if _MANY_DIGITS.search(line):
        _check_numbers(msgspec.json.decode(line))
    answer = None
    if isinstance(record.event, Ordered):
        if not _is_word(record.event.order):
            raise ValueError(f"order is {record.event.order[:40]!r}, expected 1 to {MOST_WORD} characters")
        answer = record.event.order, clean(record.event.outcome) or "answered"
    return Line(event_id=record.stamp.event_id, body=line.decode(), answer=answer)


def _check_stamp(stamp: Stamp, node: int) -> None:
    if stamp.node != node:
        raise ValueError(f"node is {stamp.node}, expected {node}, who sent it")
    if not _is_word(stamp.event_id):
        raise ValueError(f"event_id is {stamp.event_id[:40]!r}, expected 1 to {MOST_WORD} characters")
    microseconds(stamp.at)  # Whoever tells what happened computes with it.


def _check_numbers(value: object) -> None:
    """Refuse numbers that nobody can compute with; they are looked for only where there are many digits."""
    if isinstance(value, int) and not -_MOST_INT <= value < _MOST_INT:
        raise ValueError(f"a number has {len(str(abs(value)))} digits, expected one of 64 bits")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_numbers(part)


def _read_row(row: Summary, node: int, now_us: int) -> Row:
    if row.node != node:
        raise ValueError(f"node is {row.node}, expected {node}, who sent it")
    fault = fault_of(row)
    if fault is not None:
        raise ValueError(fault)
    at_us = microseconds(row.at)
    if at_us > now_us + MOST_AHEAD_US:
        raise ValueError(f"time is {row.at[:40]!r}, more than a day ahead of the server's clock")
    step = max(row.steps.values(), default=None)
    return Row(at_us=at_us, step=step, part=part_of(row), latest=latest_of(row, at_us))


def _few(reasons: Iterable[str]) -> list[str]:
    kept = [clean(reason) for reason in reasons]
    if len(kept) <= MOST_REASONS:
        return kept
    return [*kept[: MOST_REASONS - 1], f"and {len(kept) - MOST_REASONS + 1} more"]
