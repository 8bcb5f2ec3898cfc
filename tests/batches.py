"""Batches of nodes that are not there, and a connection to a collector by hand."""

from __future__ import annotations

import socket
from typing import Any

from holdfast.detect.counters import NodeCounters, ProcessCounters, Sample, ThreadTimes
from holdfast.detect.links import LinkSnapshot
from holdfast.guard.batches import Batch
from holdfast.guard.frames import (
    Cutter,
    FromController,
    FromGuard,
    Hello,
    encode,
    from_controller,
    make_report,
)
from holdfast.telemetry import InCall, Lines, Step

TOKEN = "the token"


def make_process(**fields: Any) -> ProcessCounters:
    """Return the counters of a worker, changed where asked."""
    usual: dict[str, Any] = {
        "pid": 10,
        "start_ticks": 1,
        "state": "S",
        "cpu_s": 1.0,
        "minor_faults": 0,
        "major_faults": 0,
        "rss_bytes": 0,
        "threads": {10: ThreadTimes(ran_s=1.0)},
    }
    return ProcessCounters(**(usual | fields))


def make_batch(node: int = 1, at_s: float = 100.0, **fields: Any) -> Batch:
    """Return a second of a node with one rank of the same number, changed where asked."""
    usual: dict[str, Any] = {
        "node": node,
        "host": f"host{node}",
        "steps": [Step(rank=node, step=7, ended_s=at_s - 0.5, duration_s=0.25)],
        "calls": {node: InCall(rank=node, calls=3, steps=7, since_s=at_s - 0.25, channel=0)},
        "sample": Sample(at_s=at_s, node=NodeCounters(), processes={node: make_process()}),
        "links": [LinkSnapshot(rank=node, at_s=at_s - 0.75, sockets=[])],
    }
    return Batch(**(usual | fields))


def make_lines(ask: str, rank: int) -> Lines:
    """Return an answer that says nothing."""
    return Lines(ask=ask, rank=rank, samples=0, lines=[], stack=[])


class Caller:
    """A guard's connection, or a stranger's."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._cutter = Cutter(from_controller)
        self._heard: list[FromController] = []

    def send(self, message: FromGuard) -> None:
        """Send a frame."""
        self.socket.sendall(encode(message))

    def report(self, batch: Batch, *, sent_s: float = 0.0) -> None:
        """Send a batch."""
        self.send(make_report(batch, sent_s=sent_s))

    def hear(self) -> FromController | None:
        """Return what the collector says next, None if it has hung up."""
        while not self._heard:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._heard += self._cutter.feed(data)
        return self._heard.pop(0)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def make_hello(node: int = 1, token: str = TOKEN) -> Hello:
    """Return what a guard says first."""
    return Hello(token=token, node=node, host=f"host{node}")
