"""Orders: what a person may ask, and where it goes."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers import wait_until
from holdfast.errors import StoreError
from holdfast.serve.store import Store
from holdfast.shipment import Order
from holdfast.values import Ordered, RunEnded
from webparts import BEGIN, TOKEN, make_line, make_shipment, running, ship


def _order(client: httpx.Client, wish: Any, key: str = "k") -> httpx.Response:
    return client.post(f"/api/v1/runs/{key}/orders", json=wish)


def test_an_order_waits_until_the_log_says_what_came_of_it(guard: httpx.Client) -> None:
    """It is repeated in every receipt, and then has an outcome."""
    ship(guard, make_shipment())
    given = _order(guard, {"kind": "act", "words": "S2,S3", "who": "Ada"})
    assert given.status_code == 201
    order = given.json()
    assert (order["kind"], order["words"], order["who"]) == ("act", "S2,S3", "Ada")
    for _ in range(2):
        assert ship(guard, make_shipment()).json()["orders"] == [order]
    done = Ordered(order=order["order_id"], what="act", who="Ada", outcome="allowed", is_done=True)
    assert ship(guard, make_shipment(events=[done], first=20)).json()["orders"] == []
    assert guard.get("/api/v1/runs/k/orders").json() == {"orders": [{"order": order, "outcome": "allowed"}]}


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"kind": "explode"},
        {"kind": "act", "words": "S9"},
        {"kind": "profile", "words": "now"},
        {"kind": "undo", "words": "all"},
        {"kind": "set", "words": "name"},
        {"kind": "set", "words": "../x=1"},
        {"kind": "act", "words": "S" * 300},
        {"kind": "act", "words": "S2\n"},
        {"kind": "profile", "order_id": "mine"},
        [],
    ],
)
def test_what_no_guard_would_understand_is_refused(kept: httpx.Client, wish: Any) -> None:
    """In one line, and nothing is kept."""
    answer = _order(kept, wish)
    assert (answer.status_code, answer.text.count("\n")) == (400, 1)
    assert kept.get("/api/v1/runs/k/orders").json() == {"orders": []}


@pytest.fixture
def kept(guard: httpx.Client) -> httpx.Client:
    """Somebody with the token, and a run."""
    ship(guard, make_shipment())
    return guard


def test_a_run_that_is_over_or_unknown_takes_no_orders(guard: httpx.Client) -> None:
    """Nobody would carry them out."""
    assert _order(guard, {"kind": "profile"}).status_code == 404
    ship(guard, make_shipment(events=[*BEGIN, RunEnded(exit_code=0, reason="succeeded")]))
    assert _order(guard, {"kind": "profile"}).status_code == 409


def test_only_so_many_orders_wait(kept: httpx.Client) -> None:
    """More than fit into a receipt are refused."""
    codes = [_order(kept, {"kind": "profile"}).status_code for _ in range(17)]
    assert codes == [201] * 16 + [409]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """That of a run of this machine, in a folder to follow."""
    run_dir = tmp_path / "runs" / "here"
    run_dir.mkdir(parents=True)
    (run_dir.parent / ".holdfast").mkdir()
    (run_dir / "run.json").write_text("{}")
    (run_dir / "events.jsonl").write_bytes(b"".join(make_line(event, n) for n, event in enumerate(BEGIN)))
    return run_dir


def _find_key(client: httpx.Client) -> str:
    wait_until(lambda: client.get("/api/v1/runs").json()["runs"], "the run")
    key: str = client.get("/api/v1/runs").json()["runs"][0]["run"]["key"]
    return key


def test_a_run_of_this_machine_finds_its_order_at_once(store: Store, run_dir: Path) -> None:
    """It lies in the run directory, under its id."""
    with running(store, runs=run_dir.parent) as server, server.client(token=TOKEN) as client:
        key = _find_key(client)
        order = _order(client, {"kind": "undo"}, key).json()
        file = run_dir / "orders" / f"{order['order_id']}.json"
        assert json.loads(file.read_text()) == order
        file.unlink()
        file.parent.rmdir()
        file.parent.write_text("in the way")
        refused = _order(client, {"kind": "undo"}, key)
        assert (refused.status_code, "run directory" in refused.json()["error"]) == (409, True)
        assert len(client.get(f"/api/v1/runs/{key}/orders").json()["orders"]) == 1


def test_an_order_is_known_before_a_guard_can_see_it(
    store: Store, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its answer could come first, and the order would wait for ever."""
    seen: list[list[str]] = []
    add = store.add_order

    def look_and_add(key: str, order: Order) -> None:
        seen.append([file.suffix for file in (run_dir / "orders").iterdir()])
        add(key, order)

    monkeypatch.setattr(store, "add_order", look_and_add)
    with running(store, runs=run_dir.parent) as server, server.client(token=TOKEN) as client:
        assert _order(client, {"kind": "undo"}, _find_key(client)).status_code == 201
    assert (seen, [file.suffix for file in (run_dir / "orders").iterdir()]) == ([[".new"]], [".json"])


def test_an_order_that_cannot_be_kept_is_not_laid(
    store: Store, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody has written down does not happen."""

    def fail(*_: object) -> None:
        raise StoreError("store y: the disk is full")

    with running(store, runs=run_dir.parent) as server, server.client(token=TOKEN) as client:
        key = _find_key(client)
        monkeypatch.setattr(store, "add_order", fail)
        assert _order(client, {"kind": "undo"}, key).status_code == 503
    assert list((run_dir / "orders").iterdir()) == []


def test_an_order_that_cannot_be_laid_is_forgotten(
    store: Store, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run directory has just gone: nobody would ever answer it."""
    add = store.add_order

    def add_and_lose(key: str, order: Order) -> None:
        add(key, order)
        shutil.rmtree(run_dir / "orders")

    with running(store, runs=run_dir.parent) as server, server.client(token=TOKEN) as client:
        key = _find_key(client)
        monkeypatch.setattr(store, "add_order", add_and_lose)
        assert _order(client, {"kind": "undo"}, key).status_code == 409
    assert store.all_orders(key) == []


def test_an_order_for_a_run_that_was_just_forgotten_is_refused(
    guard: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says why."""
    store.take([make_shipment()], heard_at=datetime.now(UTC) - timedelta(days=2))
    add = store.add_order

    def forget_and_add(key: str, order: Order) -> None:
        store.trim(max_age_s=86400.0, max_bytes=None)
        add(key, order)

    monkeypatch.setattr(store, "add_order", forget_and_add)
    answer = _order(guard, {"kind": "undo"})
    assert (answer.status_code, answer.json()) == (
        400,
        {"error": "run is 'k', expected one that the store has heard of"},
    )
