"""How a newcomer gets the state of its stage while the others train on: a copy, then every update since.

A *donor*, a worker of the same stage, copies its state between two steps and sends it from a thread of its
own; from then on it passes on each reduced gradient whose update is final. The newcomer applies them as the
donor did, so that it holds the same bits. One TCP connection, which the donor opens: it begins with the token
of the attempt, and whatever else comes ends it.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Thread
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.job.parcel import decode_forms, encode_forms, form_of, memory_of, pack, unpack

MOST_WAITING = 64
"""Updates that may wait to be sent: a newcomer that falls behind further never catches up."""
_CONNECT_S = 10.0
_SILENCE_S = 120.0
"""A donor that trains sends something once a step; one that computes longer than this is given up."""
_TOKEN_BYTES = 256
_MOST_HEAD_BYTES = 64 << 20
_BROKEN = (OSError, ValueError, EOFError, InputError, RuntimeError, msgspec.DecodeError)

Kind = Literal["state", "update", "end", "refused"]


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """What a donor sends: a tree of values, and the forms of the tensors whose bytes follow."""

    kind: Kind
    version: int = 0
    """Of the state; after the update."""
    waiting: int = 0
    """Parcels that the donor had not sent yet."""
    words: str = ""
    """Why it is refused."""
    tree: bytes = b""
    forms: list[tuple[list[int], str]] = []


_PARCEL = msgspec.msgpack.Decoder(Parcel)


class DonorLostError(Exception):
    """What a donor sent has ended too early, or is not what it should be."""


class Feeding:
    """The donor's end: what is given to it is sent by a thread, and never waited for."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token
        self._queue: Queue[tuple[Parcel, list[Tensor]] | None] = Queue(MOST_WAITING + 2)
        self.is_over = False
        """The newcomer has got all, or will not."""
        Thread(target=self._send_all, name="holdfast-feed", daemon=True).start()

    def give(self, kind: Kind, version: int, value: Any) -> None:
        """Send a tree of values and tensors, whose tensors nobody changes any more."""
        packed = pack(value)
        forms = encode_forms([form_of(each) for each in packed.tensors])
        self._put((Parcel(kind=kind, version=version, tree=packed.tree, forms=forms), packed.tensors))

    def end(self, version: int) -> None:
        """Say that the newcomer enters at this version."""
        self._put((Parcel(kind="end", version=version), []))
        self._put(None)

    def refuse(self, words: str) -> None:
        """Say why there is nothing to be had here."""
        self._put((Parcel(kind="refused", words=words), []))
        self._put(None)

    def _put(self, item: tuple[Parcel, list[Tensor]] | None) -> None:
        try:
            self._queue.put_nowait(item)
        except Full:
            self.is_over = True

    def _send_all(self) -> None:
        # Whatever goes wrong, the newcomer notices, and training does not.
        with suppress(*_BROKEN), _connect(self._address) as connection:
            connection.sendall(_frame(self._token.encode()))
            while (item := self._take()) is not None:
                parcel, tensors = item
                parcel = msgspec.structs.replace(parcel, waiting=self._queue.qsize())
                connection.sendall(_frame(msgspec.msgpack.encode(parcel)))
                for tensor in tensors:
                    connection.sendall(memory_of(tensor.cpu().contiguous()))
        self.is_over = True

    def _take(self) -> tuple[Parcel, list[Tensor]] | None:
        """Return the next to be sent; None when there is nothing more, or it has come to too much."""
        while not self.is_over:
            with suppress(Empty):
                return self._queue.get(timeout=1.0)
        return None


class Intake:
    """The newcomer's end: a socket that a donor connects to, and what comes through it."""

    def __init__(self, host: str, token: str) -> None:
        self._token = token.encode()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.settimeout(_SILENCE_S)
        self.port: int = self._listener.getsockname()[1]
        self._connection: socket.socket | None = None
        self.received_bytes = 0

    def parcels(self) -> Iterator[tuple[Parcel, Any]]:
        """Yield what a donor sends, until its end; ``DonorLostError`` if it ends too early.

        Called again, it waits for another donor.
        """
        try:
            with self._accept() as connection:
                self._connection = connection
                while True:
                    head = self._read_frame(connection, _MOST_HEAD_BYTES)
                    parcel = _PARCEL.decode(head)
                    tensors = [self._read_tensor(connection, *row) for row in parcel.forms]
                    yield parcel, unpack(parcel.tree, tensors) if parcel.tree else None
                    if parcel.kind == "end":
                        return
        except _BROKEN as error:
            raise DonorLostError(str(error) or type(error).__name__) from None

    def close(self) -> None:
        """Stop listening, and end what is under way; from any thread."""
        for each in (self._listener, self._connection):
            if each is not None:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> socket.socket:
        while True:
            connection, _ = self._listener.accept()
            connection.settimeout(_SILENCE_S)
            with suppress(*_BROKEN):
                if hmac.compare_digest(self._read_frame(connection, _TOKEN_BYTES), self._token):
                    return connection
            connection.close()

    def _read_frame(self, connection: socket.socket, most: int) -> bytes:
        length = int.from_bytes(self._read(connection, bytearray(4)), "big")
        if length > most:
            raise ValueError(f"a frame of {length} bytes, expected at most {most}")
        return bytes(self._read(connection, bytearray(length)))

    def _read_tensor(self, connection: socket.socket, shape: Sequence[int], dtype: str) -> Tensor:
        (form,) = decode_forms([(shape, dtype)])
        tensor = torch.empty(form.shape, dtype=form.dtype)
        self._read(connection, memory_of(tensor))
        return tensor

    def _read(self, connection: socket.socket, buffer: Any) -> Any:
        view = memoryview(buffer)
        while view:
            count = connection.recv_into(view)
            if not count:
                raise ConnectionResetError("the donor is gone")
            view = view[count:]
            self.received_bytes += count
        return buffer


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    deadline_s = time.monotonic() + _CONNECT_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
