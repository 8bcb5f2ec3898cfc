"""Runs in lists: how they are, or how they were a moment ago."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from helpers import CHANGE, wait_until
from holdfast.errors import StoreError
from holdfast.serve.store import Store
from holdfast.serve.web import turns as turning
from holdfast.serve.web.lately import Lately
from holdfast.serve.web.live import Live
from holdfast.serve.web.turns import Turns
from holdfast.values import JobSlowed
from webparts import make_shipment


@pytest.fixture
def live(store: Store) -> Live:
    """Of a store with two runs that train."""
    store.take([make_shipment("a", steps=[1, 2]), make_shipment("b", steps=[3])])
    return Live(store)


@pytest.fixture
def hasty(store: Store, live: Live) -> Iterator[Lately]:
    """Whose readers do not wait."""
    made = Lately(store, live, wait_s=0.0)
    made.turns.start()
    yield made
    made.turns.end()


def _states(lately: Lately, store: Store) -> dict[str, str]:
    return {row.key: look.view.state for row, look in lately.look(store.runs())}


def _slow(store: Store, live: Live) -> None:
    store.take([make_shipment("a", events=[JobSlowed(change=CHANGE)], first=10)])
    live.change(["a"])


def test_all_is_up_to_date_while_little_changes(store: Store, live: Live) -> None:
    """And nothing is done twice."""
    lately = Lately(store, live)
    assert _states(lately, store) == {"a": "training", "b": "training"}
    [first, _] = [look for _, look in lately.look(store.runs())]
    [again, _] = [look for _, look in lately.look(store.runs())]
    assert again is first
    assert first.step_s is not None
    _slow(store, live)
    assert _states(lately, store) == {"a": "slow", "b": "training"}


def test_who_does_not_wait_sees_it_a_moment_later(store: Store, live: Live, hasty: Lately) -> None:
    """What was never looked at is looked at, however long it takes."""
    assert _states(hasty, store) == {"a": "training", "b": "training"}
    _slow(store, live)
    assert _states(hasty, store) == {"a": "training", "b": "training"}
    wait_until(lambda: _states(hasty, store)["a"] == "slow", "the change to be seen")


def test_what_was_not_looked_at_for_long_is_not_shown_as_it_was(store: Store, live: Live) -> None:
    """Nobody is shown how things were an hour ago."""
    lately = Lately(store, live, wait_s=0.0, old_s=0.0)
    lately.turns.start()
    _states(lately, store)
    _slow(store, live)
    assert _states(lately, store)["a"] == "slow"
    lately.turns.end()


def test_a_list_says_how_old_it_is(store: Store, live: Live, hasty: Lately) -> None:
    """Nothing, while all is up to date."""
    looks = hasty.look(store.runs())
    assert hasty.late_s(looks) == 0.0
    _slow(store, live)
    assert hasty.late_s(looks) > 0.0


def test_runs_are_looked_at_before_anybody_asks(
    store: Store, live: Live, hasty: Lately, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the first reader finds them as they were a moment ago, and does not wait."""
    asked: list[str] = []
    look_up = store.news

    def ask(key: str, *, after: int) -> object:
        asked.append(key)
        return look_up(key, after=after)

    monkeypatch.setattr(store, "news", ask)
    hasty.meet(["a", "b", "none such"])
    wait_until(lambda: "none such" in asked, "those before it to be looked at")
    _slow(store, live)
    assert _states(hasty, store) == {"a": "training", "b": "training"}


def test_what_another_server_has_put_there_is_seen(store: Store, live: Live) -> None:
    """Nobody told this one."""
    lately = Lately(store, live)
    assert _states(lately, store)["a"] == "training"
    store.take([make_shipment("a", events=[JobSlowed(change=CHANGE)], first=10)])
    assert _states(lately, store)["a"] == "slow"


def test_a_run_that_is_gone_is_left_out(store: Store, live: Live) -> None:
    """It was removed between two questions to the store."""
    [row, *_] = store.runs()
    gone = msgspec.structs.replace(row, key="gone")
    assert [each.key for each, _ in Lately(store, live).look([gone, row])] == [row.key]


def test_each_has_its_turn_although_one_fails() -> None:
    """In the order in which they came; who waits twice is taken once."""
    taken: list[str] = []

    def take(key: str) -> None:
        taken.append(key)
        if key == "b":
            raise ValueError(key)

    turns = Turns("test", take, share=0.5)
    turns.put(["a", "b", "a", "c"])
    turns.start()
    wait_until(lambda: len(taken) == 3, "all of them")
    turns.end()
    assert taken == ["a", "b", "c"]
    assert not turns.is_going


def test_who_met_a_store_that_was_away_has_another_turn() -> None:
    """Nothing may happen to it any more, and nobody would look at it again."""
    taken: list[str] = []

    def take(key: str) -> None:
        taken.append(key)
        if key == "a" and taken.count("a") < 3:
            raise StoreError("store z: the disk is full")

    turns = Turns("test", take, away_s=0.01)
    turns.put(["a", "b"])
    turns.start()
    wait_until(lambda: taken.count("a") == 3, "the last one")
    turns.end()
    assert taken == ["a", "b", "a", "a"]


def test_a_store_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is old is of no interest, and others wait."""
    monkeypatch.setattr(turning, "_MOST_TRIES", 3)
    taken: list[str] = []

    def take(key: str) -> None:
        taken.append(key)
        if key == "a":
            raise StoreError("store z: the disk is full")

    turns = Turns("test", take, away_s=0.01)
    turns.put(["a"])
    turns.start()
    wait_until(lambda: taken.count("a") == 3, "the last one")
    turns.put(["b"])
    wait_until(lambda: "b" in taken, "the other one")
    turns.end()
    assert taken == ["a", "a", "a", "b"]
