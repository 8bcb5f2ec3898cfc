"""The collector and those it should not listen to: they harm their own connection and no other."""

from __future__ import annotations

import resource
import socket

import msgspec
import pytest
from collectors import Kept, kept
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import TOKEN, make_batch, make_hello
from helpers import wait_until
from holdfast.guard import collecting
from holdfast.guard.frames import Hello, encode, make_report
from holdfast.telemetry import Channel

__all__ = ["kept"]  # A fixture.


@pytest.mark.parametrize("token", ["", "wrong"])
def test_who_does_not_know_the_token_is_dropped(kept: Kept, token: str) -> None:
    """Nothing that it sends is taken, and the others are unharmed."""
    friend = kept.call(2)
    stranger = kept.call(None)
    stranger.send(make_hello(token=token))
    assert stranger.hear() is None
    friend.report(make_batch(2))
    assert [batch.node for batch in kept.wait_for(1)] == [2]
    assert kept.collector.nodes == [2]


@pytest.mark.parametrize(
    "words",
    [
        encode(make_report(make_batch(), sent_s=0.0)),
        encode(Hello(token=TOKEN, node=1, host="a" * 5000)),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\xc1",
    ],
    ids=["a report before the hello", "a hello without end", "HTTP", "four gigabytes", "no msgpack"],
)
def test_a_stranger_that_talks_nonsense_is_dropped(kept: Kept, words: bytes) -> None:
    """At its first word."""
    stranger = kept.call(None)
    stranger.socket.sendall(words)
    assert stranger.hear() is None


@pytest.mark.parametrize(
    "words",
    [encode(make_hello()), b"\0\0\0\1\xc1", (65 << 20).to_bytes(4, "big")],
    ids=["a second hello", "no msgpack", "too long"],
)
def test_a_node_that_talks_nonsense_loses_its_connection_and_no_more(kept: Kept, words: bytes) -> None:
    """What it said before is kept, it may come again, and the other node goes on."""
    first, second = kept.call(1), kept.call(2)
    first.report(make_batch(1))
    first.socket.sendall(words)
    assert first.hear() is None
    kept.call(1).report(make_batch(1))
    second.report(make_batch(2))
    assert sorted(batch.node for batch in kept.wait_for(3)) == [1, 1, 2]


def test_a_group_that_no_job_can_have_ends_the_connection(kept: Kept) -> None:
    """Few bytes could else stand for more ranks than memory holds."""
    report = make_report(
        make_batch(channels={1: [Channel(number=1, kind="group", ranks=[0, 1])]}), sent_s=0.0
    )
    [packed] = report.channels[1]
    huge = msgspec.structs.replace(packed, runs=((0, 10**12, 1),))
    caller = kept.call()
    caller.send(msgspec.structs.replace(report, channels={1: [huge]}))
    assert caller.hear() is None


def test_strangers_who_say_nothing_are_dropped_after_a_while(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that has said the token may be silent for as long as it likes."""
    friend = kept.call(1)
    stranger = kept.call(None)
    monkeypatch.setattr(collecting, "_HELLO_S", 0.0)
    assert stranger.hear() is None
    friend.report(make_batch())
    kept.wait_for(1)


def test_no_more_strangers_are_let_in_than_there_is_room_for(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is turned away at once."""
    monkeypatch.setattr(collecting, "_MOST_STRANGERS", 0)
    assert kept.call(None).hear() is None


def test_who_came_while_there_was_no_descriptor_is_let_in_when_there_is(kept: Kept) -> None:
    """The listener is tried again later; until then the others are served."""
    friend = kept.call(2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unconnected = socket.socket()
    highest = unconnected.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        unconnected.settimeout(20)
        unconnected.connect(("127.0.0.1", kept.port))
        wait_until(lambda: not kept.collector.is_listening, "the failure to accept")
        friend.report(make_batch(2))
        kept.wait_for(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: kept.collector.is_listening, "another try")
    unconnected.close()
    assert kept.collector.nodes == [2]


@settings(max_examples=25)
@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4))
def test_whatever_strangers_send_a_node_is_still_heard(garbage: list[bytes]) -> None:
    """Any bytes on any number of connections harm those connections alone."""
    kept = Kept()
    try:
        friend = kept.call(1)
        for data in garbage:
            stranger = kept.call(None)
            stranger.socket.sendall(data)
        friend.report(make_batch())
        kept.wait_for(1)
        assert kept.collector.nodes == [1]
    finally:
        kept.close()
