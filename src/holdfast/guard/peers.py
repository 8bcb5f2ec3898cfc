"""One connection of a collector: what has come through it, and what is to go."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque
from collections.abc import Callable, Collection

from msgspec.structs import force_setattr

from holdfast.guard.arrivals import ClockOffset, rebase
from holdfast.guard.frames import (
    HELLO_BYTES,
    LIMIT_BYTES,
    Cutter,
    FromGuard,
    Hello,
    Report,
    from_guard,
    knows_token,
)
from holdfast.guard.packing import Unpacker

BROKEN = (OSError, ValueError)
"""What a connection can end with: the network, the other end's goodbye, a frame that is none."""
_KEPT = 30
"""Reports that wait to be taken."""
_UNSENT = 16
"""Frames that wait to be sent; who does not read them is not told more."""
_CHUNK_BYTES = 1 << 18


class Peer:
    """A guard at the other end; a stranger until it has said the token."""

    def __init__(self, connection: socket.socket, token: str, unpacker: Unpacker, *, since_s: float) -> None:
        self.since_s = since_s
        self.is_known = False
        self.node = -1
        self.ranks: Collection[int] = ()
        """Those that its last batch told of."""
        self.dropped = 0
        self.events = selectors.EVENT_READ
        """What its owner waits for."""
        self._connection = connection
        self._fd = connection.fileno()
        self._token = token
        self._unpacker = unpacker
        self._cutter = Cutter(from_guard, limit_bytes=HELLO_BYTES)
        self._reports: deque[Report] = deque(maxlen=_KEPT)
        self._unsent: deque[bytes] = deque()
        self._sending = b""
        self._clock = ClockOffset()

    def fileno(self) -> int:
        """Return the descriptor, also after the connection was closed."""
        return self._fd

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def take(self) -> list[Report]:
        """Return the reports that have come in; called by another thread than the rest."""
        taken: list[Report] = []
        with contextlib.suppress(IndexError):  # It is empty; the other thread may add and drop meanwhile.
            while True:
                taken.append(self._reports.popleft())
        return taken

    def put(self, frame: bytes) -> None:
        """Have a frame sent, if there is room; may be called by any thread."""
        if len(self._unsent) < _UNSENT:
            self._unsent.append(frame)

    def read(self, clock: Callable[[], float]) -> None:
        """Take in what has come; raise one of ``BROKEN`` where that is the end."""
        try:
            data = self._connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the guard hung up")
        arrived_s = clock()
        for message in self._cutter.feed(data):
            self._heed(message, arrived_s)

    def send(self) -> bool:
        """Send what can be sent now; False if there is more."""
        while self._sending or self._unsent:
            self._sending = self._sending or self._unsent.popleft()
            try:
                sent = self._connection.send(self._sending)
            except BlockingIOError:
                return False
            self._sending = self._sending[sent:]
        return True

    def _heed(self, message: FromGuard, arrived_s: float) -> None:
        if not self.is_known:
            if not isinstance(message, Hello) or not knows_token(message, self._token):
                raise ValueError("a stranger")
            self.node = message.node
            self._cutter.limit_bytes = LIMIT_BYTES
            self.is_known = True
            return
        if not isinstance(message, Report):
            raise ValueError("a second hello")
        force_setattr(message.batch, "channels", self._unpacker.unpack(message.channels))
        rebase(message.batch, self._clock.update(arrived_s, message.sent_s))
        self.ranks = message.batch.calls.keys()
        self.dropped += len(self._reports) == _KEPT
        self._reports.append(message)
