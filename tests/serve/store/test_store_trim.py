"""What is removed, and what never is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.serve.store import Store
from holdfast.serve.store.measuring import used_bytes
from holdfast.shipment import Order, Run
from store.storecases import RUN, Clock, answer, at, content, ids, line, row, ship

OLD = Run(key="old", name="old")
DAY_S = 24 * 3600.0
BIG = "x" * 2000
ORDER = Order(order_id="o1", kind="undo")


def fill(store: Store, run: Run, events: int) -> None:
    """Send many large events."""
    store.take([ship([line(f"{BIG[:150]}{i}", second=i) for i in range(events)], run=run)])


def _used(store: Store) -> int:
    with store._database.read() as connection:
        return used_bytes(connection)


def test_a_run_goes_when_it_was_silent_for_too_long(store: Store, clock: Clock) -> None:
    """Whole: half a log tells half a story."""
    store.take([ship([line("a"), line("b")], [row(1, {0: 1})], run=OLD)])
    store.mark_sent("old", "i1", "opened")
    clock.turn(days=2)
    store.take([ship([line("a")])])
    assert store.trim(max_age_s=DAY_S, max_bytes=None) == 3
    assert [run.key for run in store.runs()] == [RUN.key]
    assert (store.records("old"), store.pace("old"), store.ranks("old")) == ([], [], [])
    assert store.trim(max_age_s=DAY_S, max_bytes=None) == 0


def test_a_run_that_lives_is_not_touched_for_its_age(store: Store, clock: Clock) -> None:
    """Not even when no age is allowed."""
    store.take([ship([line("a")], [row(1, {0: 1})])])
    before = content(store)
    clock.turn(minutes=59)
    assert store.trim(max_age_s=0, max_bytes=None) == 0
    assert content(store) == before
    clock.turn(minutes=2)
    assert store.trim(max_age_s=0, max_bytes=None) == 2
    assert store.runs() == []


def test_an_open_order_stays(store: Store, clock: Clock) -> None:
    """And its run's name with it; once it is answered both can go."""
    store.take([ship([line("a")])])
    store.add_order(RUN.key, ORDER)
    clock.turn(days=2)
    assert store.trim(max_age_s=DAY_S, max_bytes=1) == 1
    assert store.trim(max_age_s=DAY_S, max_bytes=1) == 0
    assert (store.orders(RUN.key), ids(store)) == ([ORDER], [])
    store.take([ship([answer("b", "o1")])])
    clock.turn(days=2)
    assert store.trim(max_age_s=DAY_S, max_bytes=None) == 1
    assert store.run(RUN.key) is None


def test_size_takes_silent_runs_before_living_ones(store: Store, clock: Clock) -> None:
    """The one that was silent longest goes first, and no more than must."""
    for key in ("oldest", "older", "old"):
        fill(store, Run(key=key, name=key), 2000)
        clock.turn(hours=2)
    fill(store, RUN, 10)
    removed = store.trim(max_age_s=None, max_bytes=_used(store) * 6 // 10)
    left = {run.key for run in store.runs()}
    assert removed in (2000, 4000)
    assert {RUN.key, "old"} <= left
    assert "oldest" not in left
    assert len(ids(store)) == 10


def test_size_takes_the_oldest_events_of_living_runs_last(store: Store) -> None:
    """The newest stay."""
    fill(store, RUN, 6000)
    last = store.records(RUN.key)[-1]
    removed = store.trim(max_age_s=None, max_bytes=_used(store) // 2)
    kept = store.records(RUN.key)
    assert 1000 <= removed <= 5000
    assert len(kept) == 6000 - removed
    assert kept[-1] == last
    run = store.run(RUN.key)
    assert run is not None
    assert run.events == len(kept)


def test_numbers_go_on_after_all_was_removed(store: Store) -> None:
    """A reader who asks for what came after a number misses nothing."""
    store.take([ship([line("a")])])
    (first,) = store.records(RUN.key)
    assert store.trim(max_age_s=None, max_bytes=1) == 1
    store.take([ship([line("b")])])
    assert [kept.record.stamp.event_id for kept in store.records(RUN.key, after=first.number)] == ["b"]


def test_sqlite_gives_the_space_back(tmp_path: Path) -> None:
    """The file is no larger than was asked for."""
    clock = Clock()
    file = tmp_path / "store.db"
    store = Store.open(str(file), clock=clock)
    fill(store, RUN, 6000)
    assert store.size().bytes > 2_000_000
    store.trim(max_age_s=None, max_bytes=1_000_000)
    assert store.size().bytes <= 1_000_000
    assert file.stat().st_size <= 1_000_000
    store.close()


@pytest.mark.parametrize("silence", [timedelta(0), timedelta(days=2)])
def test_old_seconds_are_forgotten_but_not_counted_again(
    store: Store, clock: Clock, silence: timedelta
) -> None:
    """The pace over the whole time is the same, and a repeated row is still known."""
    hours = 10
    rows = [row(60 * minute, {0: 1.0, 1: 2.0}, step=minute) for minute in range(60 * hours)]
    clock.turn(hours=hours)
    store.take([ship([], rows)])
    clock.now += silence
    before = store.pace(RUN.key, points=50)
    store.trim(max_age_s=None, max_bytes=None)
    assert store.pace(RUN.key, points=50) == before
    assert [(item.taken, item.known) for item in store.take([ship([], rows)])] == [(0, len(rows))]
    assert store.pace(RUN.key, points=50) == before
    (new,) = store.take([ship([], [row(3600 * hours, {0: 1.0})])])
    assert new.taken == 1


def test_a_clock_that_was_ahead_once_makes_nothing_known(store: Store, clock: Clock) -> None:
    """Rows that come after it was set right are still new."""
    ahead = 20 * 3600
    store.take([ship([], [row(ahead, {0: 1.0})])])
    store.trim(max_age_s=None, max_bytes=None)
    assert store.take([ship([], [row(3600 - 60, {0: 1.0})])])[0].taken == 1
    assert at(ahead) > clock.now.isoformat()
