"""Shipments: what is taken, what is refused, and with what words."""

from __future__ import annotations

import gzip
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from helpers import wait_until
from holdfast.errors import StoreError
from holdfast.serve.store import Store, Taken
from holdfast.serve.web import writer as writing
from holdfast.shipment import MOST_BYTES, MOST_EVENTS, Order, Receipt, Run, Shipment
from holdfast.values import RunStarted
from webparts import BEGIN, TOKEN, Running, make_shipment, open_store, running, ship

_LONG = RunStarted(run_id="x", argv=["w" * 50_000], pid=7)
_JSON = {"Content-Type": "application/json"}


def _post(client: httpx.Client, content: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/api/v1/shipments", content=content, headers=_JSON | named)


def test_a_shipment_is_kept_once_and_a_second_one_is_known(guard: httpx.Client) -> None:
    """The receipt says what was new."""
    shipment = make_shipment(steps=[3])
    first, second = ship(guard, shipment), ship(guard, shipment)
    assert msgspec.json.decode(first.content, type=Receipt) == Receipt(taken=5)
    assert msgspec.json.decode(second.content, type=Receipt) == Receipt(taken=0, known=5)


def test_a_gzipped_shipment_is_taken(guard: httpx.Client) -> None:
    """Content-Encoding gzip is understood."""
    body = gzip.compress(msgspec.json.encode(make_shipment()))
    assert _post(guard, body, Content_Encoding="gzip").json()["taken"] == len(BEGIN)


def test_a_line_that_is_no_event_is_named_and_the_others_are_kept(guard: httpx.Client) -> None:
    """What is wrong in parts is kept in parts."""
    good = make_shipment()
    odd = msgspec.structs.replace(good, events=[*good.events, msgspec.Raw(b'{"what":"is this"}')])
    answer = ship(guard, odd).json()
    assert (answer["taken"], len(answer["refused"])) == (len(BEGIN), 1)


def test_open_orders_come_with_the_receipt_of_node_0_only(guard: httpx.Client, store: Store) -> None:
    """The guard of node 0 carries orders out."""
    ship(guard, make_shipment())
    order = Order(order_id="o1", kind="profile", who="me")
    store.add_order("k", order)
    ask = Shipment(run=Run(key="k", name="n"), node=0)
    assert msgspec.json.decode(ship(guard, ask).content, type=Receipt).orders == [order]
    assert ship(guard, msgspec.structs.replace(ask, node=1)).json()["orders"] == []


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", 400, "cannot be read"),
        (b"[" * 100_000, 400, "cannot be read"),
        (b'{"run":{"key":"k"},"node":0}', 400, "name"),
        (b'{"run":{"key":"","name":"n"},"node":0}', 400, "run.key"),
        (b'{"run":{"key":"a/b","name":"n"},"node":0}', 400, "run.key"),
        (b'{"run":{"key":"..","name":"n"},"node":0}', 400, "run.key"),
        (b'{"run":{"key":"a\\u0000","name":"n"},"node":0}', 400, "run.key"),
        (b'{"run":{"key":"k","name":"n"},"node":-1}', 400, "node"),
        (b'{"run":{"key":"k","name":"n"},"node":99999999999999999999}', 400, ""),
        (b'{"run":{"key":"k","name":"n"},"node":0,"schema":99}', 400, "schema"),
        (b'{"run":{"key":"k","name":"%s"},"node":0}' % (b"n" * 500), 400, "run.name"),
        (b'{"run":{"key":"k","name":"n"},"node":0,"events":[%s1]}' % (b"1," * MOST_EVENTS), 413, "events"),
        (b" " * (MOST_BYTES + 1), 413, "bytes"),
    ],
)
def test_what_is_no_shipment_is_refused_in_one_line(
    picky: httpx.Client, body: bytes, code: int, words: str
) -> None:
    """The sender learns why, and nothing is kept."""
    answer = _post(picky, body)
    assert (answer.status_code, answer.text.count("\n")) == (code, 1)
    assert words in answer.json()["error"]
    assert picky.get("/api/v1/runs").json() == {"runs": []}


def test_a_small_body_that_unpacks_to_too_much_is_refused(guard: httpx.Client) -> None:
    """A bomb of gzip costs no more than a shipment."""
    bomb = gzip.compress(b" " * (25 * MOST_BYTES))
    assert len(bomb) < MOST_BYTES
    answer = _post(guard, bomb, Content_Encoding="gzip")
    assert (answer.status_code, "unpacked" in answer.json()["error"]) == (413, True)


@pytest.mark.parametrize(
    "body",
    [b"no gzip", gzip.compress(b"{}")[:-3], gzip.compress(b"{}") + b"more"],
    ids=["no gzip", "cut", "more behind it"],  # Its header has the time in it, and a name must not.
)
def test_a_body_that_is_not_gzip_is_refused(picky: httpx.Client, body: bytes) -> None:
    """Neither is one that was cut, nor one with something behind it."""
    assert _post(picky, body, Content_Encoding="gzip").status_code == 400


def test_a_body_without_a_length_is_cut_off_when_it_is_too_long(guard: httpx.Client) -> None:
    """Chunks are counted as they come."""
    chunks = (b" " * (1 << 20) for _ in range(6))
    answer = guard.post("/api/v1/shipments", content=chunks, headers=_JSON)
    assert answer.status_code == 413


def test_other_types_and_encodings_are_refused(guard: httpx.Client) -> None:
    """Only JSON, plain or in gzip."""
    assert guard.post("/api/v1/shipments", content=b"{}").status_code == 415
    assert _post(guard, b"{}", Content_Encoding="br").status_code == 415


def test_many_that_wait_are_written_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction holds all that came while the one before was written."""
    sizes: list[int] = []
    is_held, may_go, take = threading.Event(), threading.Event(), store.take

    def slow_take(shipments: list[Shipment], **more: object) -> list[Taken]:
        sizes.append(len(shipments))
        is_held.set()
        assert may_go.wait(20)
        return take(shipments)

    monkeypatch.setattr(store, "take", slow_take)
    with running(store) as server, server.client(token=TOKEN) as client, ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ship, client, make_shipment("first"))]
        assert is_held.wait(20)
        answers += [pool.submit(ship, client, make_shipment(f"k{n}")) for n in range(10)]
        _wait_for_waiting(server, 10)
        may_go.set()
        assert [answer.result().status_code for answer in answers] == [200] * 11
    assert sizes == [1, 10]


def test_one_that_cannot_be_kept_does_not_harm_those_beside_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug that one shipment brings out is answered to its sender alone."""
    is_held, may_go, take = threading.Event(), threading.Event(), store.take

    def picky_take(shipments: list[Shipment], **more: object) -> list[Taken]:
        is_held.set()
        assert may_go.wait(20)
        if any(shipment.run.key == "bad" for shipment in shipments):
            raise ValueError("a secret of the store")
        return take(shipments)

    monkeypatch.setattr(store, "take", picky_take)
    with running(store) as server, server.client(token=TOKEN) as client, ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ship, client, make_shipment("first"))]
        assert is_held.wait(20)
        answers += [pool.submit(ship, client, make_shipment(key)) for key in ("good", "bad")]
        _wait_for_waiting(server, 2)
        may_go.set()
        codes = [answer.result().status_code for answer in answers]
        assert codes == [200, 200, 500]
        assert "secret" not in answers[2].result().text


def test_a_full_queue_asks_senders_to_come_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost: senders keep what was not taken."""
    monkeypatch.setattr(writing, "_MOST_WAITING_BYTES", 1000)
    is_held, may_go, take = threading.Event(), threading.Event(), store.take

    def slow_take(shipments: list[Shipment], **more: object) -> list[Taken]:
        is_held.set()
        assert may_go.wait(20)
        return take(shipments)

    monkeypatch.setattr(store, "take", slow_take)
    with running(store) as server, server.client(token=TOKEN) as client, ThreadPoolExecutor(4) as pool:
        first = pool.submit(ship, client, make_shipment("a"))
        assert is_held.wait(20)
        second = pool.submit(ship, client, make_shipment("b"))
        _wait_for_waiting(server, 1)
        third = ship(client, make_shipment("c"))
        may_go.set()
        assert (third.status_code, "retry-after" in third.headers) == (429, True)
        assert [first.result().status_code, second.result().status_code] == [200, 200]
        assert ship(client, make_shipment("c")).status_code == 200


def test_a_store_that_is_away_asks_senders_to_come_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the sender nor the log sees a traceback."""

    def fail(*_: object, **__: object) -> None:
        raise StoreError("store x: the disk is full")

    with running(store) as server, server.client(token=TOKEN) as client:
        with monkeypatch.context() as patch:
            patch.setattr(store, "take", fail)
            patch.setattr(store, "runs", fail)
            answer = ship(client, make_shipment())
            health = client.get("/healthz")
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert (health.status_code, health.text) == (503, "store down\n")
        assert ship(client, make_shipment()).status_code == 200
    assert [record.message for record in caplog.records if record.name == "holdfast.serve"] == [
        "store x: the disk is full"
    ]


@pytest.mark.root
def test_a_full_disk_loses_nothing(little_disk: Path) -> None:
    """What was answered with 503 is taken when there is room again, and what was taken stays."""
    with open_store(little_disk) as store, running(store) as server, server.client(token=TOKEN) as client:
        taken = 0
        while (answer := ship(client, make_shipment(f"k{taken}", [_LONG]))).status_code == 200:
            taken += 1
            assert taken < 1000
        assert (answer.status_code, "retry-after" in answer.headers, taken > 0) == (503, True, True)
        subprocess.run(["mount", "-o", "remount,size=16m", str(little_disk)], check=True)
        assert ship(client, make_shipment(f"k{taken}", [_LONG])).json()["taken"] == 1
        assert [store.run(f"k{number}") is not None for number in range(taken + 1)] == [True] * (taken + 1)


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with hardly more room than an empty store needs."""
    if os.geteuid() != 0:
        assert os.environ.get("CI") != "true", "needs root to mount a small file system"
        pytest.skip("needs root to mount a small file system")
    disk = tmp_path / "little"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def _wait_for_waiting(server: Running, count: int) -> None:
    wait_until(lambda: server.context.counters.read().waiting == count, f"{count} that wait")
