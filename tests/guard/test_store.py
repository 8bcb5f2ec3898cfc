"""What launchers tell each other through a store."""

from __future__ import annotations

import threading

import pytest
from torch.distributed import HashStore, PrefixStore, TCPStore  # type: ignore[attr-defined]

from helpers import make_death, wait_until
from holdfast.guard.store import exchange_deaths, open_store, share
from holdfast.values import Death

LOST_PEER = "RuntimeError: Connection closed by peer"


def test_node_0s_word_is_everybodys() -> None:
    """The word of the others is not heard."""
    store = HashStore()
    assert share(store, is_host=True, word="grün") == "grün"
    assert share(store, is_host=False, word="red") == "grün"


def test_deaths_come_in_the_order_of_their_reports() -> None:
    """Each node sees those before it and its own."""
    store = HashStore()
    first, second = make_death(node=0, error="ValueError: ü"), make_death(node=1, rank=9)
    assert list(exchange_deaths(store, first, prefix="holdfast/0")) == [first]
    assert list(exchange_deaths(store, second, prefix="holdfast/0")) == [first, second]


def test_attempts_do_not_see_each_others_deaths() -> None:
    """A restart begins with an empty board."""
    store = HashStore()
    exchange_deaths(store, make_death(rank=0), prefix="holdfast/0")
    assert list(exchange_deaths(store, make_death(rank=1), prefix="holdfast/1")) == [make_death(rank=1)]


def test_a_victim_waits_for_the_guilty() -> None:
    """The node that reports first but has only a victim names the other's death too."""
    store = HashStore()
    victim, guilty = make_death(node=0, error=LOST_PEER), make_death(node=1, signal="SIGKILL")
    found: list[list[Death]] = []
    waiting = threading.Thread(
        target=lambda: found.append(list(exchange_deaths(store, victim, prefix="holdfast/0")))
    )
    waiting.start()
    wait_until(lambda: store.check(["holdfast/0/deaths/1"]), "the victim's report")
    exchange_deaths(store, guilty, prefix="holdfast/0")
    waiting.join()
    assert found == [[victim, guilty]]


def test_a_store_that_is_gone_leaves_our_own_death() -> None:
    """Its host may be the node that died."""
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    client = TCPStore("localhost", server.port, is_master=False)
    del server
    mine = make_death()
    assert list(exchange_deaths(client, mine, prefix="holdfast/0")) == [mine]


def test_every_attempt_gets_an_empty_store_that_all_nodes_find() -> None:
    """Node 0 serves it; the others are told where; nothing of the one before is in it."""
    meeting = HashStore()
    for attempt in range(2):
        prefix = f"holdfast/{attempt}"
        server, address, port = open_store(meeting, is_host=True, prefix=prefix, address="localhost")
        assert server is not None
        assert open_store(meeting, is_host=False, prefix=prefix, address="elsewhere") == (None, address, port)
        client = TCPStore(address, port, is_master=False)
        assert client.check(["left"]) is False
        PrefixStore("", client)
        client.set("left", "behind")


@pytest.mark.parametrize("text", ["\udcff"])
def test_a_death_with_text_that_is_no_unicode_does_not_raise(text: str) -> None:
    """It is at least our own."""
    mine = make_death(error=text)
    assert list(exchange_deaths(HashStore(), mine, prefix="holdfast/0")) == [mine]
