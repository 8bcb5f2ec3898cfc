"""What a guard does with what it sees: judges it alone, judges all nodes, or leaves that to the controller.

The controller is the guard of node 0. A guard that has not heard of it for some seconds judges its own ranks
alone, which is better than nobody judging them.
"""

from __future__ import annotations

import gc
import resource
import socket
from typing import Protocol

from holdfast.guard.batches import Batch, Gatherer
from holdfast.guard.collecting import Collector, narrow
from holdfast.guard.dumps import DumpsHere, store_dumps
from holdfast.guard.frames import NameFunctions, Profile, Question, Request
from holdfast.guard.jobprofile import Errands
from holdfast.guard.judging import Bench, Judge
from holdfast.guard.reporting import Reporting
from holdfast.guard.shipping import Shipper
from holdfast.guard.trimming import Trimmer
from holdfast.telemetry import Ask, ProfileOrder


class Duty(Protocol):
    """What is done with the batches of this node."""

    poll_s: float
    """How often to ``poll``."""

    def take(self, batch: Batch, now_s: float, *, has_watchdog: bool) -> None:
        """Do what is to be done, once a second."""

    def poll(self) -> None:
        """Look whether anybody has asked something; it costs next to nothing."""


def make_duty(reporting: Reporting | None, gatherer: Gatherer, bench: Bench, *, node: int) -> Duty:
    """Return what the guard has been told to do; without a word it judges alone."""
    if reporting is None:
        return Alone(gatherer, bench)
    if reporting.listen_fd is not None:
        return Controlling(reporting, gatherer, bench)
    return Reports(reporting, gatherer, bench, node=node)


class Alone:
    """Judges the ranks of this node."""

    poll_s = 1.0

    def __init__(self, gatherer: Gatherer, bench: Bench) -> None:
        self._judge = Judge(bench, gatherer.ask, errands_here(gatherer))

    def take(self, batch: Batch, now_s: float, *, has_watchdog: bool) -> None:
        """Judge them."""
        self._judge.judge([batch], now_s, has_watchdog=has_watchdog)

    def poll(self) -> None:
        """Nobody else asks here."""


class Controlling:
    """Judges the ranks of all nodes."""

    poll_s = 1.0

    def __init__(self, reporting: Reporting, gatherer: Gatherer, bench: Bench) -> None:
        assert reporting.listen_fd is not None
        expect_many_nodes()
        self.collector = Collector(
            socket.socket(fileno=reporting.listen_fd),
            reporting.token,
            on_dumps=lambda dumps: store_dumps(bench.dumps, dumps),
        )
        self._gatherer = gatherer
        self._judge = Judge(bench, self._ask, Errands(order=self._profile, functions=self._name_functions))
        self._node = 0
        self._ranks: list[int] = []

    def take(self, batch: Batch, now_s: float, *, has_watchdog: bool) -> None:
        """Judge them."""
        self._ranks, self._node = list(batch.calls), batch.node
        self._judge.judge([batch, *self.collector.take()], now_s, has_watchdog=has_watchdog)

    def poll(self) -> None:
        """It is us who ask."""

    def _ask(self, ask: Ask) -> None:
        self._gatherer.ask(narrow(ask, self._ranks))
        self.collector.ask(ask)

    def _profile(self, order: ProfileOrder) -> None:
        self._gatherer.profile(order)
        self.collector.profile(order)

    def _name_functions(self, node: int, numbers: list[int]) -> None:
        if node == self._node:
            self._gatherer.name_functions(numbers)
        else:
            self.collector.name_functions(node, numbers)


class Reports:
    """Leaves it to the controller while there is one."""

    poll_s = 0.25

    def __init__(self, reporting: Reporting, gatherer: Gatherer, bench: Bench, *, node: int) -> None:
        self._gatherer = gatherer
        self._bench = bench
        self._judge: Judge | None = None
        """While nobody leads."""
        self._connections = 0
        self._trimmer = Trimmer(attempts_behind=reporting.attempts_behind)
        self._dumps = DumpsHere(bench.dumps.with_name(f"{bench.dumps.name}.node{node}"))
        self.shipper = Shipper(
            reporting.ship_to, reporting.token, node=node, host=socket.gethostname(), on_ask=self._pass_on
        )

    def take(self, batch: Batch, now_s: float, *, has_watchdog: bool) -> None:
        """Send it; judge it too where nobody else does."""
        if self._connections != self.shipper.connections:
            self._connections = self.shipper.connections
            self._trimmer.start_over()
        trimmed = self._trimmer.trim(batch)
        self.shipper.ship(trimmed, self._dumps.read(trimmed.answers))
        if self.shipper.is_led(now_s):
            self._judge = None
            return
        self._judge = self._judge or Judge(self._bench, self._gatherer.ask, errands_here(self._gatherer))
        self._judge.judge([batch], now_s, has_watchdog=has_watchdog)

    def poll(self) -> None:
        """Pass on questions to the ranks of this node."""
        self.shipper.poll()

    def _pass_on(self, request: Request) -> None:
        match request:
            case Question():
                self._gatherer.ask(self._dumps.localise(request))
            case Profile():
                self._gatherer.profile(request.order)
            case NameFunctions():
                self._gatherer.name_functions(request.numbers)


def errands_here(gatherer: Gatherer) -> Errands:
    """Return how to reach the one node that there is."""
    return Errands(order=gatherer.profile, functions=lambda node, numbers: gatherer.name_functions(numbers))


def expect_many_nodes() -> None:
    """Make this process fit to be the controller of a large job."""
    # Every node takes a descriptor; the usual limit is for programs that use ``select``.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Batches are kept for minutes and have no cycles; to look for some so often would cost the most of all.
    gc.set_threshold(50_000, 20, 100)
