"""A collector with connections to it, for the tests of collecting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from batches import TOKEN, Caller, make_hello
from helpers import wait_until
from holdfast.guard.batches import Batch
from holdfast.guard.collecting import Collector
from holdfast.guard.frames import Heard
from holdfast.guard.sockets import listen


class Kept:
    """A collector, its clock, and what has come out of it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.dumps: list[Mapping[int, bytes]] = []
        listener = listen(is_local=True)
        self.port: int = listener.getsockname()[1]
        self.collector = Collector(listener, TOKEN, on_dumps=self.dumps.append, clock=lambda: self.now_s)
        self.batches: list[Batch] = []
        self._callers: list[Caller] = []

    def call(self, node: int | None = 1) -> Caller:
        """Connect; as a node that is let in, or as nobody."""
        caller = Caller(self.port)
        self._callers.append(caller)
        if node is not None:
            caller.send(make_hello(node))
            assert caller.hear() == Heard()
        return caller

    def wait_for(self, count: int) -> list[Batch]:
        """Return the batches when so many have come."""

        def has_come() -> bool:
            self.batches += self.collector.take()
            return len(self.batches) >= count

        wait_until(has_come, f"{count} batches")
        return self.batches

    def close(self) -> None:
        """Let go of everything."""
        for caller in self._callers:
            caller.close()
        self.collector.close()


@pytest.fixture
def kept() -> Iterator[Kept]:
    """A collector that is closed afterwards."""
    kept = Kept()
    yield kept
    kept.close()
