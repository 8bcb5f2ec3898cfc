"""The shipper: real connections; batches arrive, questions come back, and nothing ever waits for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from collectors import Kept, kept

from batches import TOKEN, make_batch
from helpers import wait_until
from holdfast.guard import shipping
from holdfast.guard.collecting import Collector
from holdfast.guard.frames import Heard, Question, Request, encode
from holdfast.guard.shipping import LED_S, Shipper
from holdfast.guard.sockets import listen
from holdfast.telemetry import Ask, Channel, Step

__all__ = ["kept"]  # A fixture.

Ship = Callable[..., Shipper]


@pytest.fixture
def asked() -> list[Request]:
    """What shippers were asked."""
    return []


@pytest.fixture
def ship(asked: list[Request]) -> Iterator[Ship]:
    """Makes shippers of node 1, which are closed afterwards."""
    made: list[Shipper] = []

    def make(port: int, token: str = TOKEN) -> Shipper:
        made.append(Shipper(f"127.0.0.1:{port}", token, node=1, host="a", on_ask=asked.append))
        return made[-1]

    yield make
    for shipper in made:
        shipper.close()


def _numbered(step: int) -> list[Step]:
    return [Step(rank=1, step=step, ended_s=0.0, duration_s=1.0)]


def test_batches_arrive_in_order_with_all_that_is_in_them(kept: Kept, ship: Ship) -> None:
    """Channels and dumps too."""
    shipper = ship(kept.port)
    channels = {1: [Channel(number=1, kind="group", ranks=[0, 2, 4, 7], name="dp")]}
    for step in range(3):
        shipper.ship(make_batch(steps=_numbered(step), channels=channels), {1: b"dump"})
    batches = kept.wait_for(3)
    assert [batch.steps[0].step for batch in batches] == [0, 1, 2]
    assert [batch.channels for batch in batches] == [channels] * 3
    assert kept.dumps == [{1: b"dump"}] * 3


def test_a_question_is_passed_on_by_the_caller_of_poll(kept: Kept, ship: Ship, asked: list[Request]) -> None:
    """Not by the thread that heard it."""
    shipper = ship(kept.port)
    shipper.ship(make_batch())
    kept.wait_for(1)
    kept.collector.ask(Ask(id="q", ranks=[1], duration_s=1.0))

    def is_asked() -> bool:
        shipper.poll()
        return bool(asked)

    wait_until(is_asked, "the question")
    assert asked == [Question(ask=Ask(id="q", ranks=[1], duration_s=1.0))]


def test_batches_wait_for_a_controller_that_comes_later(ship: Ship) -> None:
    """The launcher's socket listens before its guard is there."""
    listener = listen(is_local=True)
    shipper = ship(listener.getsockname()[1])
    shipper.ship(make_batch(steps=_numbered(1)))
    collector = Collector(listener, TOKEN)
    try:
        found = _await(collector, 1)
    finally:
        collector.close()
    assert found == [1]


def test_a_controller_that_is_replaced_is_found_again(ship: Ship) -> None:
    """Its successor has the same socket, from the same launcher; the node says hello anew."""
    listener = listen(is_local=True)
    shipper = ship(listener.getsockname()[1])
    steps = []
    for number in (1, 2):
        collector = Collector(listener.dup(), TOKEN)
        try:
            wait_until(lambda number=number: shipper.connections == number, "the connection")  # type: ignore[misc]
            shipper.ship(make_batch(steps=_numbered(number)))
            steps += _await(collector, 1)
        finally:
            collector.close()
    listener.close()
    assert steps == [1, 2]


def _await(collector: Collector, count: int) -> list[int]:
    found: list[int] = []

    def has_come() -> bool:
        found.extend(batch.steps[0].step for batch in collector.take())
        return len(found) >= count

    wait_until(has_come, f"{count} batches")
    return found


def test_what_cannot_be_sent_is_kept_for_a_while_and_counted_then(ship: Ship) -> None:
    """Nobody listens: the caller does not wait, and memory is bounded."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        shipper = ship(nobody.getsockname()[1])
        for step in range(100):
            shipper.ship(make_batch(steps=_numbered(step)))
        assert shipper.dropped == 70


def test_a_controller_that_takes_nothing_holds_up_nobody(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lets the node in and never reads again: batches are dropped, and the caller goes on."""
    monkeypatch.setattr(shipping, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        shipper = ship(deaf.getsockname()[1])
        connection, _ = deaf.accept()
        with connection:
            connection.sendall(encode(Heard()))
            wait_until(lambda: shipper.connections == 1, "the welcome")
            large = {1: bytes(4 << 20)}
            for step in range(100):
                shipper.ship(make_batch(steps=_numbered(step)), large)
            assert shipper.dropped > 0


def test_nobody_leads_who_was_not_heard_for_long(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong token, or a socket at which nobody accepts, is no controller."""
    kept = Kept()
    shipper = ship(kept.port, token="wrong")
    started_s = shipper.heard_s
    assert shipper.is_led(started_s)
    shipper.ship(make_batch())
    wait_until(lambda: shipper.tries >= 2, "a second try")
    assert not shipper.is_led(started_s + LED_S)
    assert (shipper.connections, kept.collector.take()) == (0, [])
    kept.close()


def test_a_controller_at_work_leads(kept: Kept, ship: Ship) -> None:
    """What is heard last counts."""
    shipper = ship(kept.port)
    shipper.ship(make_batch())
    kept.wait_for(1)
    started_s = shipper.heard_s
    kept.collector.ask(Ask(id="q", ranks=[1], duration_s=1.0))
    wait_until(lambda: shipper.heard_s > started_s, "a word")
    assert shipper.is_led(started_s + LED_S)


@pytest.mark.parametrize(
    "words", [b"", b"\xff\xff\xff\xff", b"\0\0\0\1\xc1"], ids=["nothing", "long", "nonsense"]
)
def test_a_controller_that_makes_no_sense_is_left_and_tried_again(ship: Ship, words: bytes) -> None:
    """Somebody else may have been given its port."""
    with socket.create_server(("127.0.0.1", 0)) as strange:
        strange.settimeout(20)
        shipper = ship(strange.getsockname()[1])
        for _ in range(2):
            connection, _ = strange.accept()
            connection.sendall(words)
            connection.close()
    assert shipper.tries >= 2
    assert shipper.connections == 0


@pytest.mark.parametrize("address", ["nowhere.invalid:1", "[::1]:1", "127.0.0.1:1"])
def test_an_address_where_nobody_is_ends_nothing(address: str) -> None:
    """The thread tries on."""
    shipper = Shipper(address, TOKEN, node=1, host="a", on_ask=lambda question: None)
    wait_until(lambda: shipper.tries >= 2, "a second try")
    shipper.close()
    assert not any(thread.name == "holdfast-shipper" for thread in threading.enumerate())
