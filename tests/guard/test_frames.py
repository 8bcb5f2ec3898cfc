"""Frames: what is sent is what comes out, however it is cut, and anything else is refused."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches import TOKEN, make_batch, make_hello
from holdfast.guard.frames import (
    HELLO_BYTES,
    LIMIT_BYTES,
    Cutter,
    FromGuard,
    Heard,
    Hello,
    Question,
    encode,
    from_controller,
    from_guard,
    knows_token,
    make_report,
)
from holdfast.telemetry import Ask, Channel

MESSAGES: list[FromGuard] = [
    make_hello(),
    make_report(make_batch(), sent_s=1.5),
    make_report(make_batch(node=2), sent_s=2.5, dumps={2: b"\0dump"}),
]
STREAM = b"".join(encode(message) for message in MESSAGES)


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_the_same_frames_come_out_however_the_stream_is_cut(cuts: list[int]) -> None:
    """A connection may deliver a byte or all frames at once."""
    edges = [0, *sorted(cuts), len(STREAM)]
    cutter = Cutter(from_guard)
    found = [each for begin, end in itertools.pairwise(edges) for each in cutter.feed(STREAM[begin:end])]
    assert found == MESSAGES


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for_but_never_taken(data: bytes) -> None:
    """Random bytes are no frame: they raise a ValueError, or are the beginning of one that never ends."""
    cutter = Cutter(from_guard)
    try:
        assert cutter.feed(data) == []
    except ValueError:
        return


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_damaged_frame_raises_nothing_but_a_value_error(place: int, change: int) -> None:
    """Whatever byte is wrong, the owner of the connection has one kind of error to expect."""
    damaged = bytearray(STREAM)
    damaged[place] ^= change
    cutter = Cutter(from_guard)
    try:
        found = cutter.feed(bytes(damaged))
    except ValueError:
        return
    assert all(isinstance(each, FromGuard) for each in found)


@pytest.mark.parametrize("limit_bytes", [HELLO_BYTES, LIMIT_BYTES])
def test_a_frame_that_says_it_is_too_long_is_refused_before_it_comes(limit_bytes: int) -> None:
    """Four bytes are enough to know."""
    cutter = Cutter(from_guard, limit_bytes=limit_bytes)
    with pytest.raises(ValueError, match=f"expected at most {limit_bytes}"):
        cutter.feed((limit_bytes + 1).to_bytes(4, "big"))


def test_a_frame_nested_beyond_all_sense_is_refused() -> None:
    """It raises what every other frame that is none raises."""
    body = b"\x82\xa4type\xa6report\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(ValueError, match=r"nested|cannot be read|recursion"):
        Cutter(from_guard).feed(len(body).to_bytes(4, "big") + body)


def test_what_is_too_long_is_not_encoded() -> None:
    """The sender finds out, not the receiver."""
    with pytest.raises(ValueError, match="expected at most"):
        encode(make_report(make_batch(), sent_s=0.0, dumps={0: bytes(LIMIT_BYTES)}))


def test_controllers_and_guards_do_not_say_each_others_words() -> None:
    """A question is nothing that a guard could send."""
    question = encode(Question(ask=Ask(id="x", ranks=[1], duration_s=0.0)))
    with pytest.raises(msgspec.ValidationError):
        Cutter(from_guard).feed(question)
    assert Cutter(from_controller).feed(encode(Heard()) + question) == [
        Heard(),
        Question(ask=Ask(id="x", ranks=[1], duration_s=0.0)),
    ]


@pytest.mark.parametrize("token", ["", "the toke", "the token ", "\ud800", "tökén"])
def test_only_the_token_is_the_token(token: str) -> None:
    """Also one that cannot be written in UTF-8 is just a wrong one."""
    assert knows_token(make_hello(), TOKEN)
    assert not knows_token(Hello(token=token, node=1, host="a"), TOKEN)


def test_channels_travel_beside_the_batch() -> None:
    """They are packed there, and the batch itself has none."""
    channels = {1: [Channel(number=1, kind="group", ranks=list(range(1000)), name="dp")]}
    report = make_report(make_batch(channels=channels), sent_s=0.0)
    assert report.batch == make_batch()
    assert len(encode(report)) < len(encode(make_report(make_batch(), sent_s=0.0))) + 100
