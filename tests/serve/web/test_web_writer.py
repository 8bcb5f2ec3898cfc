"""The one who writes: everybody is answered who still waits for it."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreError
from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.store import Store
from holdfast.serve.web.writer import Writer
from webparts import BEGIN, make_shipment


@pytest.fixture
def writer(store: Store) -> Writer:
    """One that has not begun yet, so that what is put waits."""
    return Writer(store, on_taken=lambda shipments: None, counters=ServerCounters())


def test_who_goes_away_does_not_harm_those_who_wait(store: Store, writer: Writer) -> None:
    """What was sent is kept all the same, and the next one is answered."""
    gone, there = writer.put(make_shipment("gone")), writer.put(make_shipment("there"))
    assert gone.cancel()
    writer.start()
    assert there.result(timeout=20).taken == len(BEGIN)
    assert writer.put(make_shipment("later")).result(timeout=20).taken == len(BEGIN)
    writer.end()
    assert {row.key for row in store.runs()} == {"gone", "there", "later"}


def test_who_goes_away_while_the_store_is_away_does_not_harm_those_who_wait(
    store: Store, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are told that it failed."""

    def fail(*_: object, **__: object) -> None:
        raise StoreError("store v: the disk is full")

    gone, there = writer.put(make_shipment("gone")), writer.put(make_shipment("there"))
    assert gone.cancel()
    with monkeypatch.context() as patch:
        patch.setattr(store, "take", fail)
        writer.start()
        with pytest.raises(StoreError, match="the disk is full"):
            there.result(timeout=20)
    assert writer.put(make_shipment("later")).result(timeout=20).taken == len(BEGIN)
    writer.end()


def test_who_goes_away_while_it_is_written_does_not_harm_the_writer(store: Store) -> None:
    """It is too late to be cancelled."""
    tried: list[bool] = []
    writer = Writer(store, on_taken=lambda shipments: tried.append(first.cancel()), counters=ServerCounters())
    first = writer.put(make_shipment("first"))
    writer.start()
    assert first.result(timeout=20).taken == len(BEGIN)
    assert tried == [False]
    writer.end()
