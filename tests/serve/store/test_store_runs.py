"""Runs are found, in pages and by their words."""

from __future__ import annotations

from holdfast.serve.store import Store
from holdfast.shipment import Run
from store.storecases import Clock, ship


def keys(store: Store, text: str = "", limit: int = 100, before: str | None = None) -> list[str]:
    return [run.key for run in store.runs(text=text, limit=limit, before=before)]


def test_who_was_heard_last_comes_first(store: Store, clock: Clock) -> None:
    """By the server's clock."""
    for key in "abc":
        store.take([ship(run=Run(key=key, name=key))])
        clock.turn(seconds=1)
    store.take([ship(run=Run(key="a", name="a"))])
    assert keys(store) == ["a", "c", "b"]


def test_pages_miss_nobody(store: Store, clock: Clock) -> None:
    """Also when all were heard in the same call."""
    store.take([ship(run=Run(key=f"k{i}", name="n")) for i in range(10)])
    seen: list[str] = []
    before = None
    while page := store.runs(limit=3, before=before):
        seen += [run.key for run in page]
        before = page[-1].heard_at
    assert sorted(seen) == [f"k{i}" for i in range(10)]


def test_runs_are_found_by_their_words(store: Store) -> None:
    """Name, key, run id, host and command, in any case; signs mean themselves."""
    run = Run(key="k1", name="Llama_70b", run_id="job-77", host="node-a", command=["train.py", "--lr=50%"])
    store.take([ship(run=run), ship(run=Run(key="k2", name="other"))])
    for text in ("llama_70B", "job-77", "NODE-A", "train.py", "50%", "k1"):
        assert keys(store, text) == ["k1"], text
    assert keys(store, "llama-70b") == keys(store, "%")[1:] == []
    assert keys(store, "nobody") == []
    assert keys(store, limit=0) == keys(store, limit=-1) == []


def test_a_run_that_nobody_sent_is_none(store: Store) -> None:
    """Whatever its key."""
    assert store.run("k") is None
    assert store.run("\0") is None
