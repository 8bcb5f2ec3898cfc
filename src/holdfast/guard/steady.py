"""A rendezvous that does not disturb a job which survives deaths.

Torch's agent asks several times a second whether nodes wait to join, restarts all workers if one does, and
ends if the answer does not come. A job that goes on without some of its workers wants neither. One that is
to be restarted without a node uses the same way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, dynamic_rendezvous

_LEAVE_S = 10.0


class SteadyRendezvous(RendezvousHandler):
    """Another rendezvous, which is not asked who waits while ``is_steady`` holds."""

    def __init__(self, handler: RendezvousHandler) -> None:
        self._handler = handler
        self.is_steady: Callable[[], bool] = lambda: False
        self.wants_round = False
        """All are to meet anew, though nobody waits."""
        self._has_left = False

    def get_backend(self) -> str:
        """Return the name of the backend."""
        return self._handler.get_backend()

    @property
    def use_agent_store(self) -> bool:
        """Whether workers may use the store of the launcher."""
        return self._handler.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other nodes."""
        self.wants_round = False
        return self._handler.next_rendezvous()

    def is_closed(self) -> bool:
        """Say whether nobody can meet any more."""
        return self._handler.is_closed()

    def set_closed(self) -> None:
        """Let nobody meet any more."""
        self._handler.set_closed()  # type: ignore[no-untyped-call]

    def num_nodes_waiting(self) -> int:
        """Return how many nodes wait to join; none while the job is not to be disturbed."""
        if self.wants_round:
            return 1
        return 0 if self.is_steady() else self._handler.num_nodes_waiting()

    def spares(self) -> int:
        """Return how many nodes stand by, beyond those that the job can have at most."""
        # Torch's dynamic rendezvous knows them, and tells nobody.
        state = getattr(getattr(self._handler, "_state_holder", None), "state", None)
        return len(getattr(state, "redundancy_list", ()))

    def leave(self) -> None:
        """Be no part of it any more; the others can meet without waiting for this node."""
        # The public way out, ``shutdown``, would close it for everybody.
        self._has_left = True
        with contextlib.suppress(Exception):  # They find out by themselves when no heartbeat comes.
            self._handler._stop_heartbeats()  # type: ignore[attr-defined]
            exit_op = dynamic_rendezvous._RendezvousExitOp()
            self._handler._op_executor.run(exit_op, time.monotonic() + _LEAVE_S)  # type: ignore[attr-defined]

    def get_run_id(self) -> str:
        """Return the id of the run."""
        return self._handler.get_run_id()

    def shutdown(self) -> bool:
        """Be done with it."""
        return self._has_left or self._handler.shutdown()
