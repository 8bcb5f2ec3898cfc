"""A rendezvous that does not disturb a job which survives deaths.

Torch's agent asks several times a second whether nodes wait to join, restarts all workers if one does, and
ends if the answer does not come. A job that goes on without some of its workers wants neither.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo


class SteadyRendezvous(RendezvousHandler):
    """Another rendezvous, which is not asked who waits while ``is_steady`` holds."""

    def __init__(self, handler: RendezvousHandler) -> None:
        self._handler = handler
        self.is_steady: Callable[[], bool] = lambda: False

    def get_backend(self) -> str:
        """Return the name of the backend."""
        return self._handler.get_backend()

    @property
    def use_agent_store(self) -> bool:
        """Whether workers may use the store of the launcher."""
        return self._handler.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other nodes."""
        return self._handler.next_rendezvous()

    def is_closed(self) -> bool:
        """Say whether nobody can meet any more."""
        return self._handler.is_closed()

    def set_closed(self) -> None:
        """Let nobody meet any more."""
        self._handler.set_closed()  # type: ignore[no-untyped-call]

    def num_nodes_waiting(self) -> int:
        """Return how many nodes wait to join; none while the job is not to be disturbed."""
        return 0 if self.is_steady() else self._handler.num_nodes_waiting()

    def get_run_id(self) -> str:
        """Return the id of the run."""
        return self._handler.get_run_id()

    def shutdown(self) -> bool:
        """Be done with it."""
        return self._handler.shutdown()
