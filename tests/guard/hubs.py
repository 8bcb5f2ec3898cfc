"""A hub to talk to: what it tells its owner, and clients that are gone at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.control import Controller
from holdfast.guard.hub import Callbacks, Hub
from holdfast.membership import Regroup
from hubclient import TOKEN, Client, make_hello


class Heard:
    """What the hub told its owner."""

    def __init__(self) -> None:
        self.regroups: list[tuple[int, list[int], list[int]]] = []
        """Generation, members, dead."""
        self.left: list[tuple[int, bool]] = []
        self.stops: list[str] = []
        self.callbacks = Callbacks(
            on_regroup=self._regroup,
            on_left=lambda rank, is_done: self.left.append((rank, is_done)),
            on_stop=self.stops.append,
        )

    def _regroup(self, regroup: Regroup, controller: Controller) -> None:
        self.regroups.append((regroup.generation, regroup.members, list(controller.dead)))


Connect = Callable[..., Client]


@pytest.fixture
def heard() -> Heard:
    """What the hub of the test tells."""
    return Heard()


@pytest.fixture
def hub(heard: Heard) -> Iterator[Hub]:
    """An open hub."""
    hub = Hub(TOKEN, heard.callbacks, is_local=True)
    yield hub
    hub.close()


@pytest.fixture
def connect(hub: Hub) -> Iterator[Connect]:
    """Makes clients, and closes what is left of them."""
    made: list[Client] = []

    def make(rank: int, *, dp: int, **more: Any) -> Client:
        made.append(Client(hub.port, make_hello(rank, dp=dp, **more)))
        return made[-1]

    yield make
    for client in made:
        client.die()


def start(connect: Connect, dp: int, pp: int = 1, **more: Any) -> list[Client]:
    """Return one client per rank, all in generation 0."""
    clients = [connect(rank, dp=dp, pp=pp, **more) for rank in range(dp * pp)]
    for client in clients:
        client.report(-1)
    assert [client.regroup().generation for client in clients] == [0] * dp * pp
    return clients
