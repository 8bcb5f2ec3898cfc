"""Guards of many nodes in one process: real frames through real connections, a second whenever it is time."""

from __future__ import annotations

import contextlib
import socket
from multiprocessing.connection import Connection

import msgspec

from collected.nodes import Node
from holdfast.guard.frames import Cutter, Hello, Question, encode, from_controller, make_report
from holdfast.guard.trimming import Trimmer
from holdfast.telemetry import Ask


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes one process stands for, and how they find the controller."""

    nodes: range
    ranks: int
    world: int
    slow_node: int
    slow_from: int
    port: int
    token: str


class Guard:
    """One node's connection."""

    def __init__(self, node: Node, spread: Spread) -> None:
        self._node = node
        self._slow_from = spread.slow_from
        self._trimmer = Trimmer()
        self._cutter = Cutter(from_controller)
        self._asked: Ask | None = None
        self.sent_bytes = 0
        self._socket = socket.create_connection(("127.0.0.1", spread.port), timeout=60)
        self._socket.sendall(encode(Hello(token=spread.token, node=node.node, host=f"node{node.node:05}")))
        self._cutter.feed(self._socket.recv(4096))

    def send(self, second: int, at_s: float) -> None:
        """Send what is seen in a second, with answers to what was asked."""
        self._listen()
        batch = self._node.batch(second, at_s, job_slow_from=self._slow_from, asked=self._asked)
        frame = encode(make_report(self._trimmer.trim(batch), sent_s=at_s))
        self.sent_bytes += len(frame)
        self._socket.sendall(frame)

    def _listen(self) -> None:
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                for message in self._cutter.feed(self._socket.recv(1 << 16)):
                    if isinstance(message, Question):
                        self._asked = message.ask
        self._socket.setblocking(True)


def send_all(spread: Spread, orders: Connection) -> None:
    """Connect all nodes, then send a second of each when told its number and time; None ends it."""
    guards = []
    for number in spread.nodes:
        slow_from = spread.slow_from if number == spread.slow_node else None
        node = Node(number, spread.ranks, world=spread.world, slow_from=slow_from)
        guards.append(Guard(node, spread))
    orders.send(0)
    while (order := orders.recv()) is not None:
        second, at_s = order
        for guard in guards:
            guard.send(second, at_s)
    orders.send(sum(guard.sent_bytes for guard in guards))
