"""The connections of one generation: point to point, within a stage, and of all workers.

gloo cannot be told to give up: neither ``abort`` nor a time-out wakes a wait that others depend on, and a
group is not gone before its collectives have ended. So a mesh keeps a second handle on each of the groups'
sockets, and ``wake`` shuts them down, from any thread: whatever waits here fails at once, and so does whoever
waits for this worker. Some collectives that were begun just then never learn of it (a notification gets lost
inside gloo), so they are waited for in pieces, and those that stay are left to a thread.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from torch import Tensor
from torch._C._distributed_c10d import ProcessGroupGloo, ReduceOp, Store

FORM_TIMEOUT = timedelta(seconds=60)
"""How long connecting may take on a machine with much else to do; it is given up at once when a peer dies."""
OP_TIMEOUT = timedelta(hours=6)
"""Hangs are found by the guard, which knows how long steps take."""
LOOK_UP = timedelta(seconds=0.2)
"""How often a wait for a collective looks whether the generation is over."""
TENSORS_PER_MESSAGE = 16
"""How many tensors a stage may hand on for one micro-batch."""

Work = Any
StoreOf = Callable[[str], Store]


class PeerLostError(Exception):
    """A peer is gone or has left the generation; what was going on cannot be finished."""


@contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # Without its cause: a traceback would keep the group alive, and with it the sockets open.
        words = str(error).splitlines()
        raise PeerLostError(words[0] if words else type(error).__name__) from None


class Mesh:
    """The groups of one worker in one generation; ranks are those of the job."""

    def __init__(self, *, rank: int, members: Sequence[int], peers: Sequence[int]) -> None:
        self.members = list(members)
        self.peers = list(peers)
        """The live workers of the same stage, this one included."""
        self._index = {member: position for position, member in enumerate(self.members)}
        self._lock = Lock()
        self._sockets: list[socket.socket] = []
        self._is_broken = False
        self._outcome: SimpleQueue[str | None] = SimpleQueue()
        """Why connecting failed, None if it did not."""
        self._pending: Work | None = None
        """The last collective of all workers."""
        self._direct: Any = None
        self._stage: Any = None
        self._world: Any = None
        self._rank = rank

    def connect(self, store_of: StoreOf) -> None:
        """Connect the groups; in a thread, since gloo would wait for a peer that is gone until its time-out.

        A thread that is given up ends by itself, with its groups, when that is over.
        """
        Thread(target=self._connect, args=(store_of,), name="holdfast-connect", daemon=True).start()
        error = self._outcome.get()
        if error is not None:
            raise PeerLostError(error)

    def _connect(self, store_of: StoreOf) -> None:
        try:
            direct = self._group(store_of("direct"), self.members)
            stage = self._group(store_of(f"stage{min(self.peers)}"), self.peers)
            world = self._group(store_of("world"), self.members)
        except Exception as error:  # Whatever it is, the worker that waits for it has to know.
            self._outcome.put(str(error) or type(error).__name__)
            return
        with self._lock:
            if not self._is_broken:
                self._direct, self._stage, self._world = direct, stage, world
                self._outcome.put(None)

    def _group(self, store: Store, members: list[int]) -> Any:
        if len(members) == 1:
            return None
        before = _open_files()
        with _losing():
            group = ProcessGroupGloo(store, members.index(self._rank), len(members), FORM_TIMEOUT)
        with self._lock:
            # Once given up, what has been opened since may belong to the generation after this one.
            if self._is_broken:
                raise PeerLostError("given up")
            self._sockets += _connections(_open_files() - before)
        return group

    def send(self, tensor: Tensor, rank: int, tag: int) -> Work:
        """Start a message; the tensor must live until the work is waited for."""
        with _losing():
            return self._direct.send([tensor], self._index[rank], tag)

    def receive(self, buffer: Tensor, rank: int, tag: int) -> Work:
        """Begin to receive a message into the buffer."""
        with _losing():
            return self._direct.recv([buffer], self._index[rank], tag)

    def sum_stage(self, tensor: Tensor) -> None:
        """Add up over the live workers of the stage, in place."""
        self._reduce(self._stage, tensor, ReduceOp.SUM)

    def max_stage(self, tensor: Tensor) -> None:
        """Take the largest over the live workers of the stage, in place; also a barrier."""
        self._reduce(self._stage, tensor, ReduceOp.MAX)

    def start_sum(self, tensor: Tensor) -> Work | None:
        """Begin to add up over all live workers, in place."""
        if self._world is None:
            return None
        with _losing():
            self._pending = self._world.allreduce([tensor], ReduceOp.SUM, OP_TIMEOUT)
        return self._pending

    def finish_sum(self, work: Work | None) -> None:
        """Wait for what ``start_sum`` began; raise ``PeerLostError`` if it cannot end."""
        self._pending = None
        if work is not None:
            self._finish(self._world, work)

    def wake(self) -> None:
        """Make every wait on this mesh fail, here and at those who wait for this worker; from any thread."""
        with self._lock:
            self._is_broken = True
            _shut(self._sockets)
            self._outcome.put("a peer left before all were connected")

    def close(self) -> None:
        """Leave the generation, and let go of everything."""
        self.wake()
        # A group that is dropped waits for its collectives, and would hold the interpreter meanwhile.
        with suppress(PeerLostError):
            self.finish_sum(self._pending)
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets = []
        self._direct = self._stage = self._world = None

    def _reduce(self, group: Any, tensor: Tensor, op: Any) -> None:
        if group is not None:
            with _losing():
                work = group.allreduce([tensor], op, OP_TIMEOUT)
            self._finish(group, work)

    def _finish(self, group: Any, work: Work) -> None:
        is_over = False
        while not finished(work):
            if is_over:
                Thread(target=_outlast, args=(group, work), name="holdfast-stuck", daemon=True).start()
                raise PeerLostError("a collective did not notice that its generation is over")
            is_over = self._is_broken  # What would notice it has until the next look.


def wait(work: Work | None) -> None:
    """Wait for a message or a collective; raise ``PeerLostError`` if it cannot end."""
    if work is not None:
        with _losing():
            work.wait(OP_TIMEOUT)


def finished(work: Work) -> bool:
    """Wait a little for a collective, and return whether it has ended; raise if it has failed."""
    with _losing():
        try:
            work.wait(LOOK_UP)
        except RuntimeError:
            if not work.is_completed():
                return False
            # It failed; or it ended well just after the time was up, and then waiting again says so.
            work.wait(LOOK_UP)
    return True


def _outlast(group: Any, work: Work) -> None:
    """Keep a group until its collective has ended: who drops it before that waits for it."""
    with suppress(PeerLostError):
        wait(work)
    del group


def _open_files() -> set[int]:
    """Return the descriptors of open files; not that of the listing itself, whose number is free again."""
    return {number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)}  # noqa: PTH208


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _connections(files: set[int]) -> list[socket.socket]:
    """Return second handles on those of the files that are connections."""
    found = []
    for number in sorted(files):
        try:
            handle = socket.socket(fileno=os.dup(number))
        except OSError:  # Not a socket, or closed already: the descriptor of the listing itself.
            continue
        try:
            handle.getpeername()
            found.append(handle)
        except OSError:
            handle.close()
    return found


def _shut(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        with suppress(OSError):  # The other end has closed it already.
            each.shutdown(socket.SHUT_RDWR)
