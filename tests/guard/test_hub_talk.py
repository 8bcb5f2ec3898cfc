"""What workers give each other through the hub, and what it does with strangers and with nonsense."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hubs import Connect, Heard, connect, heard, hub, start

from helpers import wait_until
from holdfast.commit import Standing
from holdfast.guard.hub import Hub
from holdfast.job.messages import LIMIT_BYTES, Bye, FromWorker, Given, Put, Void, Want, encode
from holdfast.membership import Reported
from hubclient import make_hello

__all__ = ["connect", "heard", "hub"]  # Fixtures.


def test_a_wanted_value_comes_with_its_neighbours(connect: Connect) -> None:
    """All that was put below the same slash, and nothing else."""
    first, second = start(connect, 2)
    for key in ("a/0", "a/1", "b/0"):
        first.send(Put(generation=0, key=key, value=key.encode()))
    first.send(Want(generation=0, key="a/1"))
    assert first.hear() == Given(generation=0, values={"a/0": b"a/0", "a/1": b"a/1"})
    second.send(Want(generation=0, key="b/0"))
    assert second.hear() == Given(generation=0, values={"b/0": b"b/0"})


def test_whoever_wants_first_is_answered_later(connect: Connect) -> None:
    """The answer comes with the value."""
    first, second = start(connect, 2)
    second.send(Want(generation=0, key="a/0"))
    first.send(Put(generation=0, key="a/1", value=b"other"))
    first.send(Put(generation=0, key="a/0", value=b"it"))
    assert second.hear() == Given(generation=0, values={"a/0": b"it", "a/1": b"other"})


def test_a_death_is_told_to_all_at_once(connect: Connect) -> None:
    """Whoever waits, here or for a peer, gives up; and who asks afterwards is told again."""
    first, second, third = start(connect, 3)
    first.send(Want(generation=0, key="a/2"))
    second.send(Put(generation=0, key="a/1", value=b"x"))
    third.die()
    assert first.hear() == second.hear() == Void(generation=0)
    second.send(Want(generation=0, key="a/1"))
    assert second.hear() == Void(generation=0)


def test_a_member_that_left_the_generation_is_not_waited_for(connect: Connect) -> None:
    """It is alive, but what it has not put by now it never will."""
    first, second = start(connect, 2)
    first.send(Want(generation=0, key="a/1"))
    second.report(0)
    assert first.hear() == Void(generation=0)
    first.report(0)
    assert first.regroup().generation == second.regroup().generation == 1


@pytest.mark.parametrize("generation", [-1, 1, 7])
def test_a_want_of_another_generation_is_void(connect: Connect, generation: int) -> None:
    """Whether it is over or has not begun."""
    (client,) = start(connect, 1)
    client.send(Want(generation=generation, key="a/0"))
    assert client.hear() == Void(generation=generation)


def test_values_of_an_old_generation_are_dropped(connect: Connect) -> None:
    """A key means something else in every generation, also when the old value comes late."""
    (client,) = start(connect, 1)
    client.send(Put(generation=0, key="a/0", value=b"old"))
    client.report(0)
    client.regroup()
    client.send(Put(generation=0, key="a/0", value=b"late"))
    client.send(Put(generation=1, key="a/1", value=b"new"))
    client.send(Want(generation=1, key="a/1"))
    assert client.hear() == Given(generation=1, values={"a/1": b"new"})


# --- strangers, and workers that talk nonsense ------------------------------------------------


@pytest.mark.parametrize("token", ["", "the toke", "the token ", "ü"])
def test_a_wrong_token_closes_the_connection(connect: Connect, hub: Hub, heard: Heard, token: str) -> None:
    """And nothing else happens."""
    assert connect(0, dp=1, token=token).is_closed()
    assert (hub.members(), heard.left, heard.regroups) == ([], [], [])
    start(connect, 1)


NONSENSE = {
    "no frame": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "oversized": (LIMIT_BYTES + 1).to_bytes(4, "big"),
    "too long for a hello": (LIMIT_BYTES).to_bytes(4, "big"),
    "no msgpack": b"\x00\x00\x00\x02\xc1\xc1",
    "another type": b"\x00\x00\x00\x01\x07",
    "deep": (1 << 16).to_bytes(4, "big") + b"\x91" * (1 << 16),
    "empty": b"\x00\x00\x00\x00",
    "no hello": encode(Bye()),
    "cut": encode(Bye())[:-1],
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_stranger_is_shown_out(connect: Connect, hub: Hub, heard: Heard, data: bytes) -> None:
    """Whatever it sends, the workers are served."""
    with socket.create_connection(("127.0.0.1", hub.port), timeout=20) as stranger:
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert heard.left == []
    start(connect, 1)


@pytest.mark.parametrize("name", ["oversized", "no msgpack", "another type", "deep", "cut"])
def test_a_worker_that_talks_nonsense_is_taken_for_dead(connect: Connect, heard: Heard, name: str) -> None:
    """Its connection is closed, and the others go on."""
    clients = start(connect, 2)
    clients[0].report(0)
    clients[1].socket.sendall(NONSENSE[name])
    clients[1].socket.shutdown(socket.SHUT_WR)
    assert clients[1].is_closed()
    assert clients[0].regroup().members == [0]
    wait_until(lambda: heard.left == [(1, False)], "the callback")


@pytest.mark.parametrize(
    "message",
    [
        Reported(rank=0, generation=0, standing=Standing(version=9)),
        make_hello(1, dp=2),
    ],
    ids=["a report for another", "a second hello"],
)
def test_a_message_out_of_place_closes_the_connection(connect: Connect, message: FromWorker) -> None:
    """Nobody can speak for another rank."""
    clients = start(connect, 2)
    clients[1].send(message)
    assert clients[1].is_closed()
    clients[0].report(0, version=3)
    assert (regroup := clients[0].regroup()).members == [0]
    assert regroup.agreement.version == 3


def test_a_rank_can_join_a_session_once(connect: Connect, hub: Hub) -> None:
    """A second connection in its name is closed; the first one stays."""
    clients = start(connect, 2)
    assert connect(1, dp=2).is_closed()
    assert hub.members() == [0, 1]
    clients[1].report(0)
    clients[0].report(0)
    assert clients[0].regroup().members == [0, 1]


def test_a_worker_that_was_taken_for_dead_cannot_come_back(connect: Connect, heard: Heard) -> None:
    """The others have gone on without it."""
    clients = start(connect, 2)
    clients[1].die()
    wait_until(lambda: heard.left == [(1, False)], "the death")
    assert connect(1, dp=2).is_closed()
    assert connect(1, dp=2, session=1).is_closed()
