"""What the guards of a job say to each other: msgpack over TCP, four bytes of length before each frame.

A guard says ``Hello`` first and then ``Report`` after ``Report``; the controller answers with ``Heard``, and
with a ``Question`` now and then. Whatever is not one of these ends the connection that it came by.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from holdfast.guard.batches import Batch
from holdfast.guard.packing import PackedChannel, pack
from holdfast.telemetry import Ask, ProfileOrder

HEADER_BYTES = 4
LIMIT_BYTES = 64 << 20
"""No frame is longer."""
HELLO_BYTES = 4096
"""Nor is what a stranger may make us hold."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First on every connection."""

    token: str
    node: int
    host: str


class Report(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """One second of a node."""

    sent_s: float
    """When it was sent, on the clock of the batch."""
    batch: Batch
    channels: dict[int, list[PackedChannel]] = {}
    """Those of the batch, which travels without; by rank, where anything is new."""
    dumps: dict[int, bytes] = {}
    """Flight Recorder dumps by rank, where the controller has asked for them and cannot see the files."""


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag="heard"):
    """The controller is there and at work; said after the hello, and again every few seconds."""


class Question(msgspec.Struct, frozen=True, kw_only=True, tag="question"):
    """The controller's question to the ranks of one node."""

    ask: Ask
    dump_bytes: int = 0
    """How much this node may send of the dumps, all ranks together."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag="profile"):
    """The ranks of one node are to be profiled."""

    order: ProfileOrder


class NameFunctions(msgspec.Struct, frozen=True, kw_only=True, tag="name_functions"):
    """A node is to say what some functions are that its ranks' patterns have."""

    numbers: list[int]


FromGuard = Hello | Report
Request = Question | Profile | NameFunctions
FromController = Heard | Request
Frame = TypeVar("Frame")

from_guard: msgspec.msgpack.Decoder[FromGuard] = msgspec.msgpack.Decoder(FromGuard)
from_controller: msgspec.msgpack.Decoder[FromController] = msgspec.msgpack.Decoder(FromController)
_ENCODER = msgspec.msgpack.Encoder()


def encode(message: FromGuard | FromController) -> bytes:
    """Return the message as a frame; raise ``ValueError`` if it is too long for one."""
    body = _ENCODER.encode(message)
    if len(body) > LIMIT_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes, expected at most {LIMIT_BYTES}")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def make_report(batch: Batch, *, sent_s: float, dumps: Mapping[int, bytes] | None = None) -> Report:
    """Return a batch as it is to be sent now."""
    return Report(
        sent_s=sent_s,
        batch=msgspec.structs.replace(batch, channels={}),
        channels=pack(batch.channels),
        dumps=dict(dumps or {}),
    )


def knows_token(hello: Hello, token: str) -> bool:
    """Say whether a hello has the token; how long that takes does not tell how much of it was right."""
    return hmac.compare_digest(hello.token.encode(errors="replace"), token.encode())


class Cutter(Generic[Frame]):
    """Cuts the bytes of one connection into frames, in whatever pieces they come."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Frame], *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        """The longest frame that is taken from now on."""
        self._decoder = decoder
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now; raise ``ValueError`` at the first that is none."""
        self._rest += data
        found: list[Frame] = []
        begin = 0
        with memoryview(self._rest) as rest:
            while (end := self._end_of(rest, begin)) is not None:
                found.append(self._decode(rest[begin + HEADER_BYTES : end]))
                begin = end
        del self._rest[:begin]
        return found

    def _end_of(self, rest: memoryview, begin: int) -> int | None:
        """Return where the frame that begins here ends, None if not all of it has come."""
        if len(rest) - begin < HEADER_BYTES:
            return None
        length = int.from_bytes(rest[begin : begin + HEADER_BYTES], "big")
        if length > self.limit_bytes:
            raise ValueError(f"a frame of {length} bytes, expected at most {self.limit_bytes}")
        end = begin + HEADER_BYTES + length
        return end if end <= len(rest) else None

    def _decode(self, body: memoryview) -> Frame:
        with body:
            try:
                return self._decoder.decode(body)
            except RecursionError as error:  # Nested beyond all sense.
                raise ValueError(f"a frame that cannot be read: {error}") from error
