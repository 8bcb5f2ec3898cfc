"""What of a shipment can be kept, and why the rest cannot."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.serve.store.incoming import clean, iso, microseconds, read_shipment
from store.badparts import BAD_EVENTS, BAD_ROWS
from store.storecases import Clock, at, line, row, ship

NOW_US = microseconds(Clock().now.isoformat())


@pytest.mark.parametrize(("raw", "reason"), BAD_EVENTS)
def test_what_is_no_event_is_refused_and_the_rest_kept(raw: bytes, reason: str) -> None:
    """One clear reason each."""
    read = read_shipment(ship([line("a"), msgspec.Raw(raw), line("b")]), NOW_US)
    assert [kept.event_id for kept in read.lines] == ["a", "b"]
    assert len(read.refused) == 1
    assert reason in read.refused[0]


@pytest.mark.parametrize(("changes", "reason"), BAD_ROWS)
def test_a_row_that_cannot_be_is_refused(changes: dict[str, object], reason: str) -> None:
    """It would spoil what the others add up to, or not fit into a database."""
    bad = msgspec.structs.replace(row(0, {0: 0.5}), **changes)
    read = read_shipment(ship([], [bad, row(1, {0: 0.5})]), NOW_US)
    assert [kept.at_us for kept in read.rows] == [microseconds(at(1))]
    assert len(read.refused) == 1
    assert reason in read.refused[0]


def test_a_time_survives_being_a_number() -> None:
    """To the microsecond."""
    assert iso(microseconds("2026-11-15T14:00:00.000001+02:00")) == "2026-11-15T12:00:00.000001+00:00"


def test_clean_text_stays_as_it_is() -> None:
    """Only what no database takes is replaced."""
    assert clean("größer 🙂\n") == "größer 🙂\n"
    assert clean("a\0\ud800b") == "a\ufffd?b"
    assert clean("abc", 2) == "ab"
