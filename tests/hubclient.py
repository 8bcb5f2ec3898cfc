"""A worker's side of the hub as tests need it: plain sockets, nothing of the code that it stands for."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import msgspec

from holdfast.commit import Standing
from holdfast.job.messages import HEADER_BYTES, FromHub, FromWorker, Hello, Void, encode
from holdfast.membership import Joined, Needs, Regroup, Reported

TOKEN = "the token"
PATIENCE_S = 60.0
_DECODER = msgspec.msgpack.Decoder(FromHub)


class Client:
    """A worker as the hub sees it; as small as it can be."""

    def __init__(self, port: int, hello: Hello) -> None:
        self.rank = hello.joined.rank
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.send(hello)

    def send(self, message: FromWorker) -> None:
        """Send a message."""
        self.socket.sendall(encode(message))

    def report(self, generation: int, version: int = 0) -> None:
        """Say that it has left a generation."""
        self.send(Reported(rank=self.rank, generation=generation, standing=Standing(version=version)))

    def hear(self) -> FromHub:
        """Return the next message."""
        length = int.from_bytes(self._read(HEADER_BYTES), "big")
        message: FromHub = _DECODER.decode(self._read(length))
        return message

    def decision(self) -> FromHub:
        """Return the next message that does not merely say that a generation is over."""
        while isinstance(message := self.hear(), Void):
            pass
        return message

    def regroup(self) -> Regroup:
        """Return the next decision, which tells where to go on."""
        decision = self.decision()
        assert isinstance(decision, Regroup), decision
        return decision

    def is_closed(self) -> bool:
        """Wait for the hub to close the connection; raise if it does not."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(1 << 16):
                pass
        return True

    def die(self) -> None:
        """Close without a goodbye."""
        self.socket.close()

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            assert part, "the hub closed the connection"
            data += part
        return data


def make_hello(
    rank: int, *, dp: int, pp: int = 1, session: int = 0, token: str = TOKEN, **joined: Any
) -> Hello:
    """Return what a worker of a small job says first."""
    needs = Needs(dp=dp, pp=pp, microbatches=2, costs=((1.0, 1.0, 1.0),) * pp)
    return Hello(token=token, session=session, joined=Joined(rank=rank, needs=needs, **joined))
