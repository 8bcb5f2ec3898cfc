"""The connections of one generation: point to point, within a stage, and of all workers.

Three groups, because they are left in different ways: messages and the collectives of a stage are waited for
where they are made, while the collective of all workers may still be on its way when a failure is seen
elsewhere, and a group cannot be dropped before its collectives have ended. ``close`` drops them in that
order: the sockets close, whoever waits for this worker is woken, and does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroupGloo, ReduceOp, Store

FORM_TIMEOUT = timedelta(seconds=20)
"""For a peer that died between giving its address and being connected to; other deaths are seen at once."""
OP_TIMEOUT = timedelta(hours=6)
"""Hangs are found by the guard, which knows how long steps take."""
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

    def __init__(self, store_of: StoreOf, *, rank: int, members: Sequence[int], peers: Sequence[int]) -> None:
        self.members = list(members)
        self.peers = list(peers)
        """The live workers of the same stage, this one included."""
        self._index = {member: position for position, member in enumerate(self.members)}
        with _losing():
            self._direct = _group(store_of("direct"), rank, self.members)
            self._stage = _group(store_of(f"stage{min(self.peers)}"), rank, self.peers)
            self._world = _group(store_of("world"), rank, self.members)

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
            return self._world.allreduce([tensor], ReduceOp.SUM, OP_TIMEOUT)

    def close(self) -> None:
        """Leave the generation: drop the groups, so that their sockets close."""
        self._direct = None
        self._stage = None
        self._world = None

    def _reduce(self, group: Any, tensor: Tensor, op: Any) -> None:
        if group is not None:
            with _losing():
                wait(group.allreduce([tensor], op, OP_TIMEOUT))


def wait(work: Work | None) -> None:
    """Wait for a message or a collective; raise ``PeerLostError`` if it cannot end."""
    if work is not None:
        with _losing():
            work.wait(OP_TIMEOUT)


def _group(store: Store, rank: int, members: list[int]) -> Any:
    if len(members) == 1:
        return None
    return ProcessGroupGloo(store, members.index(rank), len(members), FORM_TIMEOUT)


def empty_like(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a buffer for a message: messages travel from and to the host's memory."""
    return torch.empty(shape, dtype=dtype)
