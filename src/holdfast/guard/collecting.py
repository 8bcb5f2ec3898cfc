"""Takes the batches of all other nodes, and puts the controller's questions to them.

One thread serves all connections. What comes through one of them can close that one and nothing else, and
every node has room for so many batches and no more.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from holdfast.guard.batches import Batch
from holdfast.guard.frames import Heard, NameFunctions, Profile, Question, encode
from holdfast.guard.packing import Unpacker
from holdfast.guard.peers import BROKEN, Peer
from holdfast.guard.sockets import notice_loss
from holdfast.telemetry import Ask, ProfileOrder

_BEAT_S = 2.0
"""How often the nodes hear that somebody is at work."""
_HELLO_S = 10.0
_BACKLOG = 4096
_MOST_STRANGERS = 4096
"""Connections that have not said the token yet."""
_AT_ONCE = 256
_TICK_S = 1.0
_DUMP_BYTES = 4 << 20
"""What one node may send of its dumps after a question."""
_ALL_DUMPS_BYTES = 256 << 20
"""And all nodes together."""


class Collector:
    """The controller's side of all connections; its methods are called by the guard's loop and never wait."""

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        *,
        on_dumps: Callable[[Mapping[int, bytes]], None] = lambda dumps: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve a listening socket; ``on_dumps`` is called by ``take``."""
        self._listener = listener
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._token = token
        self._on_dumps = on_dumps
        self._clock = clock
        self._peers: dict[int, Peer] = {}
        """By descriptor; only the thread adds or removes, under the lock."""
        self._gone: list[Peer] = []
        """Those whose last batches are yet to be taken."""
        self._lock = threading.Lock()
        self._unpacker = Unpacker()
        self._beat_s = time.monotonic()
        self._dropped = 0
        self._is_closing = False
        self.is_listening = True
        """False while there is no descriptor for another connection."""
        self._bell, self._ear = socket.socketpair()
        for each in (self._bell, self._ear):
            each.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="holdfast-collector", daemon=True)
        self._thread.start()

    @property
    def nodes(self) -> list[int]:
        """Those that are connected now."""
        return sorted({peer.node for peer in self._members()})

    @property
    def dropped(self) -> int:
        """Batches that were not taken in time."""
        return self._dropped + sum(peer.dropped for peer in self._members())

    def take(self) -> list[Batch]:
        """Return what has come in since the last call, each node's in order, on the clock of this node."""
        with self._lock:
            gone, self._gone = self._gone, []
        batches = []
        for peer in (*gone, *self._members()):
            for report in peer.take():
                batches.append(report.batch)
                if report.dumps:
                    self._on_dumps(report.dumps)
        self._dropped += sum(peer.dropped for peer in gone)
        self._beat()
        return batches

    def ask(self, ask: Ask) -> None:
        """Put a question to the nodes that have somebody to answer it, and room for it."""
        members = self._members()
        budget = min(_DUMP_BYTES, _ALL_DUMPS_BYTES // max(1, len(members)))
        for peer in members:
            mine = narrow(ask, peer.ranks)
            if mine.ranks:
                peer.put(encode(Question(ask=mine, dump_bytes=budget if ask.dumps is not None else 0)))
        self._ring()

    def profile(self, order: ProfileOrder) -> None:
        """Have the ranks of all nodes profiled."""
        for peer in self._members():
            mine = [rank for rank in order.ranks if rank in peer.ranks]
            if mine:
                peer.put(encode(Profile(order=msgspec.structs.replace(order, ranks=mine))))
        self._ring()

    def name_functions(self, node: int, numbers: list[int]) -> None:
        """Ask a node what some functions are."""
        for peer in self._members():
            if peer.node == node:
                peer.put(encode(NameFunctions(numbers=numbers)))
        self._ring()

    def close(self) -> None:
        """Let go of all connections and of the listening socket."""
        self._is_closing = True
        self._ring()
        self._thread.join(5.0)
        for peer in self._peers.values():
            peer.close()
        self._selector.close()
        for each in (self._listener, self._bell, self._ear):
            each.close()

    def _members(self) -> list[Peer]:
        with self._lock:
            return [peer for peer in self._peers.values() if peer.is_known]

    def _beat(self) -> None:
        """Let the nodes know that the guard's loop, which calls this, goes on."""
        if time.monotonic() - self._beat_s < _BEAT_S:
            return
        self._beat_s = time.monotonic()
        for peer in self._members():
            peer.put(_HEARD)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # It has been rung often enough.
            self._bell.send(b"\0")

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        checked_s = time.monotonic()
        while not self._is_closing:
            for key, events in self._selector.select(_TICK_S):
                self._attend(key.fileobj, events)
            if time.monotonic() - checked_s > _TICK_S:
                checked_s = time.monotonic()
                self._drop_silent_strangers(checked_s)
                self._listen_again()

    def _attend(self, ready: object, events: int) -> None:
        if ready is self._listener:
            self._accept()
        elif ready is self._ear:
            self._ear.recv(4096)
            self._send_all()
        elif isinstance(ready, Peer):
            with self._dropping(ready):
                if events & selectors.EVENT_WRITE:
                    self._send(ready)
                if events & selectors.EVENT_READ:
                    self._read(ready)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except (
                OSError
            ):  # No descriptor to be had, or the stranger has gone. It must not be tried at once.
                self.is_listening = False
                self._selector.unregister(self._listener)
                return
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        strangers = sum(not peer.is_known for peer in self._peers.values())
        try:
            notice_loss(connection)
            connection.setblocking(False)
        except OSError:  # It is closed already.
            strangers = _MOST_STRANGERS
        if strangers >= _MOST_STRANGERS:
            connection.close()
            return
        peer = Peer(connection, self._token, self._unpacker, since_s=time.monotonic())
        self._selector.register(peer, selectors.EVENT_READ)
        with self._lock:
            self._peers[peer.fileno()] = peer

    def _read(self, peer: Peer) -> None:
        was_known = peer.is_known
        peer.read(self._clock)
        if peer.is_known and not was_known:
            peer.put(_HEARD)
            self._send(peer)

    def _send_all(self) -> None:
        for peer in list(self._peers.values()):
            with self._dropping(peer):
                self._send(peer)

    def _send(self, peer: Peer) -> None:
        is_done = peer.send()
        events = selectors.EVENT_READ | (0 if is_done else selectors.EVENT_WRITE)
        if events != peer.events:
            peer.events = events
            self._selector.modify(peer, events)

    @contextlib.contextmanager
    def _dropping(self, peer: Peer) -> Iterator[None]:
        """Drop the peer when its connection breaks or what it says makes no sense."""
        try:
            yield
        except BROKEN:
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        if self._peers.get(peer.fileno()) is not peer:  # Dropped before, in the same round of events.
            return
        self._selector.unregister(peer)
        with self._lock:
            del self._peers[peer.fileno()]
            if peer.is_known:
                self._gone.append(peer)
        peer.close()

    def _drop_silent_strangers(self, now_s: float) -> None:
        for peer in [each for each in self._peers.values() if not each.is_known]:
            if now_s - peer.since_s > _HELLO_S:
                self._drop(peer)

    def _listen_again(self) -> None:
        if not self.is_listening:
            self.is_listening = True
            self._selector.register(self._listener, selectors.EVENT_READ)


def narrow(ask: Ask, ranks: Collection[int]) -> Ask:
    """Return the question as it concerns some ranks: a node has no use for the names of ten thousand."""
    return msgspec.structs.replace(ask, ranks=[rank for rank in ask.ranks if rank in ranks])


_HEARD = encode(Heard())
