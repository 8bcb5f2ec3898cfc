"""Where the workers of a job meet: a server in a thread of node 0's launcher, around the pure controller.

A worker connects, says the token and who it is, reports, and is told where to go on; a connection that ends
without a goodbye is a death. What a worker sends can close its own connection and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.control import Controller, Plan
from holdfast.guard.parley import Answer, Parley
from holdfast.guard.sockets import listen, notice_loss
from holdfast.job.messages import (
    HEADER_BYTES,
    Bye,
    FromHub,
    FromWorker,
    Hello,
    Put,
    Want,
    body_length,
    encode,
)
from holdfast.membership import Arranged, Hungry, Regroup, Reported, Stop
from holdfast.plan.problem import Problem

_HELLO_S = 20.0
_HELLO_BYTES = 1 << 20
"""A stranger cannot make us hold more."""
_BROKEN = (OSError, EOFError, ValueError, RecursionError, msgspec.DecodeError)
"""What a connection can end with: the network, a time-out, a frame that is none."""


class Callbacks(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to tell; called from the hub's thread, and what they raise is dropped."""

    on_regroup: Callable[[Regroup, Controller], None] = lambda regroup, controller: None
    on_left: Callable[[int, bool], None] = lambda rank, is_done: None
    on_stop: Callable[[str], None] = lambda reason: None


class _Peer:
    """One connection that has said who it is."""

    def __init__(self, hello: Hello, writer: asyncio.StreamWriter) -> None:
        self.rank = hello.joined.rank
        self.session = hello.session
        self.writer = writer


class Hub:
    """The server; public methods may be called from any thread."""

    def __init__(self, token: str, callbacks: Callbacks, *, is_local: bool, plan: Plan | None = None) -> None:
        self._plan = plan
        self._token = token.encode()
        self._callbacks = callbacks
        self._listener = listen(is_local=is_local)
        self.port: int = self._listener.getsockname()[1]
        self._parleys: dict[int, Parley] = {}
        self._peers: dict[tuple[int, int], _Peer] = {}
        """By session and rank."""
        self._dead: set[int] = set()
        self._lock = threading.Lock()
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="holdfast-hub", daemon=True)
        self._thread.start()

    def members(self) -> list[int]:
        """Return the ranks that are connected, in any session."""
        with self._lock:
            return sorted({rank for _, rank in self._peers})

    def lost(self, rank: int) -> None:
        """Take note that a worker is dead, whether or not it is connected."""
        self._call(lambda: self._end(rank))

    def advise(self, problem: Problem, moves: list[tuple[int, int]]) -> None:
        """Let workers change places, if that is the problem that they are in."""
        self._call(lambda: self._pass_on(problem, moves))

    def arrange(self, arranged: Arranged) -> None:
        """Let the workers share out their work as whoever watches them wants it."""
        self._call(lambda: self._share_out(arranged))

    def close(self) -> None:
        """End all connections, without calling that anybody's death."""
        if self._is_closing:
            return
        self._is_closing = True
        self._call(self._closed.set)
        self._thread.join(5.0)

    def _call(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # The thread has ended, and with it all that there was to do.
            self._loop.call_soon_threadsafe(function)

    # --- in the hub's thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._attend, sock=self._listener)
        await self._closed.wait()
        server.close()
        await asyncio.sleep(0)  # Those that have just been accepted begin.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # The connections that they dropped are closed.

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end, whatever comes through it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(*_BROKEN):
                notice_loss(writer.get_extra_info("socket"))
                async with asyncio.timeout(_HELLO_S):
                    hello = await _receive(reader, _HELLO_BYTES)
                if isinstance(hello, Hello) and self._is_welcome(hello):
                    await self._converse(_Peer(hello, writer), hello, reader)
        except asyncio.CancelledError:
            pass  # The hub is closed, and nobody awaits this task.
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if self._is_closing else writer.close()

    def _is_welcome(self, hello: Hello) -> bool:
        if not hmac.compare_digest(hello.token.encode(errors="replace"), self._token):
            return False
        parley = self._parleys.get(hello.session)
        if parley is None:
            return hello.joined.rank not in self._dead
        # Who was declared dead cannot come back: the others have gone on. Another may come in its place.
        is_known = hello.joined.rank not in self._dead or hello.joined.is_newcomer
        return is_known and parley.admits(hello.joined)

    async def _converse(self, peer: _Peer, hello: Hello, reader: asyncio.StreamReader) -> None:
        is_done = False
        self._join(peer, hello)
        try:
            while True:
                message = await _receive(reader)
                is_done = is_done or isinstance(message, Bye)
                if not self._heed(peer, message):
                    return
        finally:
            if not self._is_closing:
                self._part(peer, is_done=is_done)

    def _join(self, peer: _Peer, hello: Hello) -> None:
        parley = self._parleys.get(peer.session)
        is_new = parley is None
        if parley is None:
            parley = self._parleys[peer.session] = Parley(self._plan)
        with self._lock:
            self._peers[peer.session, peer.rank] = peer
        self._dead.discard(peer.rank)
        self._deliver(peer.session, parley.join(hello.joined))
        for rank in sorted(self._dead) if is_new else ():
            self._deliver(peer.session, parley.leave(rank))

    def _heed(self, peer: _Peer, message: FromWorker) -> bool:
        """Do what a message asks for; False if it has no place here."""
        parley = self._parleys[peer.session]
        if isinstance(message, Reported) and message.rank == peer.rank:
            self._deliver(peer.session, parley.report(message))
        elif isinstance(message, Hungry) and message.rank == peer.rank:
            self._deliver(peer.session, parley.hunger(message))
        elif isinstance(message, Put):
            self._deliver(peer.session, parley.put(message))
        elif isinstance(message, Want):
            self._deliver(peer.session, parley.want(peer.rank, message))
        elif isinstance(message, Bye):
            self._deliver(peer.session, parley.finish(peer.rank))
        else:
            return False
        return True

    def _part(self, peer: _Peer, *, is_done: bool) -> None:
        # Before it is off the list, so that whoever finds the list empty has been told why.
        self._tell(self._callbacks.on_left, peer.rank, is_done)
        with self._lock:
            del self._peers[peer.session, peer.rank]
            is_alive = is_done or any(rank == peer.rank for _, rank in self._peers)
        if is_alive:  # It said goodbye, or has another pipeline open.
            self._deliver(peer.session, self._parleys[peer.session].leave(peer.rank, is_done=is_done))
        else:
            self._bury(peer.rank)

    def _pass_on(self, problem: Problem, moves: list[tuple[int, int]]) -> None:
        for session, parley in sorted(self._parleys.items()):
            self._deliver(session, parley.advise(problem, moves))

    def _share_out(self, arranged: Arranged) -> None:
        # A script has one pipeline open at a time, as a rule; the last is the one that is watched.
        for session, parley in sorted(self._parleys.items())[-1:]:
            self._deliver(session, parley.arrange(arranged))

    def _end(self, rank: int) -> None:
        # Something that the worker has left running may hold its connection open.
        for peer in [peer for peer in self._peers.values() if peer.rank == rank]:
            peer.writer.transport.abort()
        self._bury(rank)

    def _bury(self, rank: int) -> None:
        """A dead worker is dead in every session, also in those that it would have joined."""
        self._dead.add(rank)
        for session, parley in sorted(self._parleys.items()):
            self._deliver(session, parley.leave(rank))

    def _deliver(self, session: int, answer: Answer) -> None:
        for rank, message in answer.letters:
            self._send(session, rank, message)
        controller = self._parleys[session].controller
        for action in answer.actions:
            if isinstance(action, Regroup):
                self._tell(self._callbacks.on_regroup, action, controller)
            elif isinstance(action, Stop) and action.rank is None:
                self._tell(self._callbacks.on_stop, action.reason)

    def _send(self, session: int, rank: int, message: FromHub) -> None:
        peer = self._peers.get((session, rank))
        if peer is not None and not peer.writer.is_closing():
            peer.writer.write(encode(message))

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        # Whatever the launcher makes of it, the workers must be served.
        with contextlib.suppress(Exception):
            callback(*arguments)


async def _receive(reader: asyncio.StreamReader, limit: int | None = None) -> FromWorker:
    length = body_length(await reader.readexactly(HEADER_BYTES))
    if limit is not None and length > limit:
        raise ValueError(f"a message of {length} bytes, expected at most {limit}")
    message: FromWorker = _DECODER.decode(await reader.readexactly(length))
    return message


_DECODER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
