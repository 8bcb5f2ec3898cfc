"""A worker's side of the hub: join, report, be told; and the store through which a generation connects.

Under ``holdfast run`` there is a hub, and a death is survived. Under another launcher there is only the store
that the launcher hosts: the same training, but the first failure ends it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Protocol

import msgspec
from torch._C._distributed_c10d import Store

from holdfast.errors import TrainingLostError
from holdfast.job.lone import LoneMember
from holdfast.job.mesh import PeerLostError
from holdfast.job.messages import (
    HEADER_BYTES,
    HUB_ENV,
    TOKEN_ENV,
    Bye,
    Farewell,
    FromHub,
    FromWorker,
    Given,
    Hello,
    Put,
    Void,
    Want,
    body_length,
    encode,
)
from holdfast.membership import Feed, Hungry, Invite, Joined, Placed, Regroup, Reported, Stop

_CONNECT_S = 30.0
_FAREWELL_S = 10.0


class Member(Protocol):
    """What a pipeline needs of those who decide."""

    survives: bool
    """Whether the others go on when a worker dies."""
    on_void: Callable[[int], None]
    """Called from another thread, with a generation that a member has left."""
    on_feed: Callable[[Feed], None]
    """Called from another thread when this worker is to be a donor."""
    on_invite: Callable[[int], None]
    """Called from another thread, with a generation whose members are to meet between two steps."""

    @property
    def host(self) -> str:
        """The address of this machine that the others see."""

    def regroup(self, report: Reported, *, is_wanted: bool) -> Regroup:
        """Report, wait for the others, and return what all go on with.

        It is wanted if all scripts asked for it, rather than that a peer was lost.
        """

    def store(self, generation: int, name: str) -> Store:
        """Return a store for the connections of a generation."""

    def leave(self) -> None:
        """Say goodbye, and return when the others have done so too."""

    def drop(self) -> None:
        """Be gone without a goodbye."""


def join(joined: Joined, *, session: int, env: Mapping[str, str]) -> Member:
    """Return the membership that the environment allows."""
    if hub := env.get(HUB_ENV):
        return HubMember(hub, Hello(token=env.get(TOKEN_ENV, ""), session=session, joined=joined))
    return LoneMember(joined, session=session, env=env)


Inbox = SimpleQueue[FromHub | OSError]
_FROM_HUB: msgspec.msgpack.Decoder[FromHub] = msgspec.msgpack.Decoder(FromHub)


class AllDoneError(Exception):
    """The other members have finished, which they could only do because this one had too."""


class HubMember:
    """A membership in a job that survives deaths; a thread listens for what cannot wait."""

    survives = True

    def __init__(self, address: str, hello: Hello) -> None:
        self.on_void: Callable[[int], None] = lambda generation: None
        self.on_feed: Callable[[Feed], None] = lambda feed: None
        self.on_invite: Callable[[int], None] = lambda generation: None
        self.place = self._rank = hello.joined.rank
        self._decisions: Inbox = SimpleQueue()
        # By generation, because a thread may still be connecting one of the past.
        self._answers: dict[int, Inbox] = {}
        self._lock = Lock()
        self._socket = _connect(address)
        self._send(hello)
        Thread(target=self._listen, name="holdfast-member", daemon=True).start()

    def regroup(self, report: Reported, *, is_wanted: bool) -> Regroup:
        self._send(report)
        return self.decided(report.generation)

    def decided(self, generation: int) -> Regroup:
        """Wait for the generation that follows one."""
        while True:
            message = self._decision()
            if isinstance(message, Regroup) and message.generation > generation:
                for old in [each for each in self._answers if each < generation]:
                    self._answers.pop(old, None)
                return message

    @property
    def host(self) -> str:
        """The address of this machine that the hub's sees."""
        return str(self._socket.getsockname()[0])

    def wait_for_place(self) -> None:
        """Return when this newcomer has been given a place; a spare may wait for ever."""
        while True:
            message = self._decision()
            if isinstance(message, Placed):
                self.place = message.place
                return

    def hunger(self, port: int) -> None:
        """Ask for a donor, who finds this newcomer at the port."""
        self._send(Hungry(rank=self._rank, address=f"{self.host}:{port}"))

    def report(self, report: Reported) -> None:
        """Say that this newcomer has caught up."""
        self._send(report)

    def check(self) -> None:
        """Raise if all is over; what else has come is kept for whoever waits for it."""
        kept = []
        with suppress(Empty):
            while True:
                kept.append(self._decision(0.0))
        for message in kept:
            self._decisions.put(message)

    def _decision(self, timeout_s: float | None = None) -> FromHub:
        message = _take(self._decisions, timeout_s)
        if isinstance(message, Stop):
            raise TrainingLostError(message.reason)
        if isinstance(message, Farewell):
            raise AllDoneError
        return message

    def store(self, generation: int, name: str) -> Store:
        return _HubStore(self, generation, name)

    def leave(self) -> None:
        # The launcher may be gone, and will not miss us; or others take too long to finish.
        with suppress(TrainingLostError, Empty):
            self._send(Bye())
            while not isinstance(_take(self._decisions, _FAREWELL_S), Farewell):
                pass
        self.drop()

    def drop(self) -> None:
        with suppress(OSError):  # The other end has closed it already.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def put(self, generation: int, key: str, value: bytes) -> None:
        """Give a value to the other members of a generation."""
        self._send(Put(generation=generation, key=key, value=value))

    def want(self, generation: int, key: str) -> dict[str, bytes]:
        """Wait for a value of a generation, and return it with those that are there already."""
        inbox = self._answers.setdefault(generation, SimpleQueue())
        self._send(Want(generation=generation, key=key))
        while True:
            message = _take(inbox)
            if isinstance(message, Void):
                raise PeerLostError(f"a member of generation {generation} is gone")
            if isinstance(message, Given):
                return message.values

    def _send(self, message: FromWorker) -> None:
        try:
            with self._lock:
                self._socket.sendall(encode(message))
        except OSError as error:
            raise _hub_gone(error) from None

    def _listen(self) -> None:
        try:
            while True:
                message = _FROM_HUB.decode(self._read(body_length(self._read(HEADER_BYTES))))
                if isinstance(message, Given | Void):
                    self._answers.setdefault(message.generation, SimpleQueue()).put(message)
                    if isinstance(message, Void):
                        self.on_void(message.generation)
                elif isinstance(message, Feed):
                    self.on_feed(message)
                elif isinstance(message, Invite):
                    self.on_invite(message.generation)
                else:
                    self._decisions.put(message)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            for inbox in (self._decisions, *list(self._answers.values())):
                inbox.put(OSError(str(error)))

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._socket.recv(count)
            if not part:
                raise ConnectionResetError("closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class _HubStore(Store):
    """What torch needs to connect a group, by way of the hub, which knows when that has become vain."""

    def __init__(self, member: HubMember, generation: int, name: str) -> None:
        super().__init__()
        self._member = member
        self._generation = generation
        self._name = name
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._known[f"{self._name}/{key}"] = data
        self._member.put(self._generation, f"{self._name}/{key}", data)

    def get(self, key: str) -> bytes:
        full = f"{self._name}/{key}"
        while full not in self._known:
            self._known |= self._member.want(self._generation, full)
        return self._known[full]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.get(key)


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    deadline_s = time.monotonic() + _CONNECT_S
    while True:
        try:
            connection = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise TrainingLostError(
                    f"cannot reach the launcher of node 0 at {address}: {error}"
                ) from None
            time.sleep(0.1)
        else:
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _take(inbox: Inbox, timeout_s: float | None = None) -> FromHub:
    message = inbox.get(timeout=timeout_s) if timeout_s != 0 else inbox.get_nowait()
    if isinstance(message, OSError):
        inbox.put(message)  # For whoever asks next.
        raise _hub_gone(message)
    return message


def _hub_gone(error: OSError) -> TrainingLostError:
    return TrainingLostError(
        "a worker is gone, and with it the launcher of node 0, which keeps the list of who is left "
        f"({error}): training ends; go on from a checkpoint"
    )
