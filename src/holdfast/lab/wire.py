"""Messages between a lab and its fork server: one JSON document per line over a Unix socket."""

from __future__ import annotations

import socket

import msgspec


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Fork a worker."""

    rank: int
    argv: list[str]
    env: dict[str, str]
    log: str
    namespace: str | None = None
    """Network namespace to enter first."""


class KillAll(msgspec.Struct, frozen=True, kw_only=True, tag="kill_all"):
    """Kill the workers that are left."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The server has imported what workers need."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A worker has been forked."""

    rank: int
    pid: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    """A worker has ended; negative codes are signals, as in ``subprocess``."""

    rank: int
    pid: int
    exit_code: int


Request = Start | KillAll
Reply = Ready | Started | Exited


def send(connection: socket.socket, message: Request | Reply) -> None:
    """Send one message."""
    connection.sendall(msgspec.json.encode(message) + b"\n")


class Lines:
    """Collects what a socket delivers, and gives it out line by line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def receive(self) -> list[bytes] | None:
        """Return the lines complete by now, None when the other end is gone; waits for something to come."""
        try:
            content = self._connection.recv(1 << 16)
        except ConnectionResetError:
            return None
        if not content:
            return None
        *lines, self._rest = (self._rest + content).split(b"\n")
        return lines
