"""A rendezvous that leaves a job alone which survives deaths."""

from __future__ import annotations

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo

from holdfast.guard.steady import SteadyRendezvous


class Lost(RendezvousHandler):
    """A rendezvous with a waiting node, whose host can go."""

    def __init__(self) -> None:
        self.is_gone = False

    def get_backend(self) -> str:
        return "lost"

    def next_rendezvous(self) -> RendezvousInfo:
        raise ConnectionError("nobody is there")

    def is_closed(self) -> bool:
        return self.is_gone

    def set_closed(self) -> None:
        self.is_gone = True

    def num_nodes_waiting(self) -> int:
        if self.is_gone:
            raise ConnectionError("the host is gone")
        return 1

    def get_run_id(self) -> str:
        return "j"

    def shutdown(self) -> bool:
        return True


def test_an_ordinary_job_hears_of_waiting_nodes() -> None:
    """It is asked as always."""
    steady = SteadyRendezvous(Lost())
    assert (steady.num_nodes_waiting(), steady.get_backend(), steady.get_run_id()) == (1, "lost", "j")
    assert (steady.use_agent_store, steady.is_closed(), steady.shutdown()) == (False, False, True)


def test_a_job_that_survives_deaths_hears_nothing() -> None:
    """Neither of nodes that wait nor of a host that is gone."""
    steady = SteadyRendezvous(Lost())
    steady.is_steady = lambda: True
    assert steady.num_nodes_waiting() == 0
    steady.set_closed()
    assert steady.is_closed()
    assert steady.num_nodes_waiting() == 0
