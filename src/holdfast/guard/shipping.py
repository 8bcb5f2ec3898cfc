"""Sends a node's batches to the controller and takes its questions, in a thread that may wait.

The guard's own loop never does: what cannot be sent is kept for half a minute, and the oldest is dropped.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from holdfast.guard.batches import Batch
from holdfast.guard.frames import (
    Cutter,
    FromController,
    Heard,
    Hello,
    Request,
    encode,
    from_controller,
    make_report,
)
from holdfast.guard.sockets import notice_loss

LED_S = 10.0
"""A controller that was not heard for so long leads nobody."""
_KEPT = 30
"""Batches that wait to be sent."""
_ASKED = 8
"""Questions that wait to be passed on; a newer one replaces an older one anyway."""
_TIMEOUT_S = 5.0
"""For a connection to be made, for the answer to a hello, and for a batch to be taken."""
_PAUSE_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Before the n-th try in a row, and up to as much again: all nodes lose their controller at once."""
_CHUNK_BYTES = 1 << 16


class _Parcel(msgspec.Struct, frozen=True):
    """What waits to be sent."""

    batch: Batch
    dumps: Mapping[int, bytes]


class Shipper:
    """One node's side of the connection; it is made again and again, for ever."""

    def __init__(
        self, address: str, token: str, *, node: int, host: str, on_ask: Callable[[Request], None]
    ) -> None:
        """Report to ``host:port``; ``on_ask`` is called by ``poll``, in the thread of the caller."""
        self.dropped = 0
        """Batches that waited for too long."""
        self.connections = 0
        """How often a controller has let us in."""
        self.tries = 0
        """To reach one."""
        self.heard_s = time.monotonic()
        """When one was heard last; it is given some time at first."""
        self._address = _parse(address)
        self._hello = encode(Hello(token=token, node=node, host=host))
        self._on_ask = on_ask
        self._parcels: deque[_Parcel] = deque()
        self._questions: deque[Request] = deque(maxlen=_ASKED)
        self._is_closing = False
        self._bell, self._ear = socket.socketpair()
        for each in (self._bell, self._ear):
            each.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="holdfast-shipper", daemon=True)
        self._thread.start()

    def ship(self, batch: Batch, dumps: Mapping[int, bytes] | None = None) -> None:
        """Have a batch sent as soon as can be."""
        while len(self._parcels) >= _KEPT:
            with contextlib.suppress(IndexError):  # The thread was quicker.
                self._parcels.popleft()
                self.dropped += 1
        self._parcels.append(_Parcel(batch, dumps or {}))
        self._ring()

    def poll(self) -> None:
        """Pass on what the controller has asked."""
        while self._questions:
            self._on_ask(self._questions.popleft())

    def is_led(self, now_s: float) -> bool:
        """Say whether a controller is at work, as far as can be known."""
        return now_s - self.heard_s < LED_S

    def close(self) -> None:
        """Let go of the connection; what was not sent is lost."""
        self._is_closing = True
        self._ring()
        self._thread.join(2 * _TIMEOUT_S)
        self._bell.close()
        self._ear.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # It has been rung often enough.
            self._bell.send(b"\0")

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._is_closing:
            self.tries += 1
            before_s = self.heard_s
            # Who cannot be reached, hangs up or talks nonsense is tried again.
            with contextlib.suppress(OSError, ValueError), self._connect() as connection:
                self._converse(connection)
            failures = 0 if self.heard_s > before_s else failures + 1
            self._wait(_PAUSE_S[min(failures, len(_PAUSE_S) - 1)])

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=_TIMEOUT_S)
        try:
            notice_loss(connection)
        except OSError:
            connection.close()
            raise
        return connection

    def _converse(self, connection: socket.socket) -> None:
        """Send what there is to send until the connection breaks or is no longer wanted."""
        cutter = Cutter(from_controller)
        connection.sendall(self._hello)
        # Only who was let in may send more than a hello.
        self._hear(cutter.feed(_receive(connection)))
        self.connections += 1
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._ear, selectors.EVENT_READ)
            while not self._is_closing:
                while self._parcels and not self._is_closing:
                    self._send(connection, self._parcels.popleft())
                ready = [key.fileobj for key, _ in selector.select()]
                if self._ear in ready:
                    self._ear.recv(_CHUNK_BYTES)
                if connection in ready:
                    self._hear(cutter.feed(_receive(connection)))

    def _send(self, connection: socket.socket, parcel: _Parcel) -> None:
        # The time is taken when it leaves: the controller compares it with when it arrives.
        report = make_report(parcel.batch, sent_s=time.monotonic(), dumps=parcel.dumps)
        connection.sendall(encode(report))

    def _hear(self, messages: list[FromController]) -> None:
        for message in messages:
            self.heard_s = time.monotonic()
            if not isinstance(message, Heard):
                self._questions.append(message)

    def _wait(self, pause_s: float) -> None:
        over_s = time.monotonic() + pause_s * (1 + random.random())
        while not self._is_closing and time.monotonic() < over_s:
            time.sleep(0.05)


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(_CHUNK_BYTES)
    if not data:
        raise ConnectionError("the controller hung up")
    return data


def _parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
