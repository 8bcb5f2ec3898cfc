"""Slow network without privileges: the kernel paces the worker's own TCP sockets (SO_MAX_PACING_RATE).

It holds whoever writes to the socket, DDP's C++ reducer included. A socket's peer rank is found by the
address at its other end: every worker names the local ends of its connections in the lab's folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.job.files import replace_file
from holdfast.job.sockets import connections
from holdfast.lab.control import sockets_path

__all__ = ["DEFAULT_NIC_BYTES_S", "NIC_ENV", "UNLIMITED", "Pacing", "connections", "pace"]

SO_MAX_PACING_RATE = 47  # From asm-generic/socket.h; Python has no name for it.
UNLIMITED = 2**64 - 1
NIC_ENV = "HOLDFAST_LAB_NIC_BYTES_S"
DEFAULT_NIC_BYTES_S = 100_000_000.0
"""Rate of a healthy emulated NIC, per connection."""


def pace(fd: int, bytes_s: float) -> None:
    """Limit what a socket sends, from its next packet on."""
    with socket.socket(fileno=os.dup(fd)) as copy:
        copy.setsockopt(
            socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", min(int(bytes_s), UNLIMITED))
        )


class Pacing:
    """The emulated NIC of a worker."""

    def __init__(self, folder: Path, *, rank: int, nic_bytes_s: float) -> None:
        self._folder = folder
        self._rank = rank
        self._nic_bytes_s = nic_bytes_s
        self._published: list[str] = []

    def apply(self, slowdown: Callable[[int], float]) -> None:
        """Set the rate of every connection to a peer; connections appear late, so call it every step."""
        mine = connections()
        self._publish([connection.local for connection in mine])
        ranks = self._rank_by_endpoint()
        for connection in mine:
            peer = ranks.get(connection.peer)
            if peer is not None:
                with contextlib.suppress(OSError):  # Closed since it was listed.
                    pace(connection.fd, self._nic_bytes_s / slowdown(peer))

    def lift(self) -> None:
        """Take the emulated NIC away."""
        for connection in connections():
            with contextlib.suppress(OSError):
                pace(connection.fd, UNLIMITED)

    def _publish(self, endpoints: list[str]) -> None:
        if endpoints != self._published:
            replace_file(sockets_path(self._folder, self._rank), msgspec.json.encode(endpoints))
            self._published = endpoints

    def _rank_by_endpoint(self) -> dict[str, int]:
        ranks: dict[str, int] = {}
        for path in sorted(self._folder.glob("rank_*.sockets.json")):
            rank = int(path.name.removeprefix("rank_").removesuffix(".sockets.json"))
            if rank != self._rank:
                endpoints = msgspec.json.decode(path.read_bytes(), type=list[str])
                ranks |= dict.fromkeys(endpoints, rank)
        return ranks
