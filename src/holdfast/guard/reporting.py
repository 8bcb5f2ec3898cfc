"""How the guards of a job find the one that judges for all: what their launchers agree on, and tell them.

Node 0's launcher owns the listening socket, so that a guard that is started again listens where the last one
did. The token travels to the guards by their environment, which workers do not inherit.
"""

from __future__ import annotations

import argparse
import secrets
import socket
from collections.abc import MutableMapping

import msgspec

from holdfast.guard.sockets import listen

TOKEN_ENV = "HOLDFAST_GUARD_TOKEN"


class Reporting(msgspec.Struct, frozen=True, kw_only=True):
    """Where the guard of one node reports to, or where others report to it."""

    token: str
    listen_fd: int | None = None
    """A listening socket; None: this is not the controller."""
    ship_to: str = ""
    """``host:port`` of the controller."""
    attempts_behind: int = 0
    """How many attempts node 0 has counted before this node joined the job."""

    def flags(self) -> list[str]:
        """Return what goes on the guard's command line; the token does not."""
        if self.listen_fd is not None:
            return ["--listen-fd", str(self.listen_fd)]
        return ["--ship-to", self.ship_to, "--attempts-behind", str(self.attempts_behind)]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Let a guard be told."""
    parser.add_argument("--listen-fd", type=int, help="socket through which other nodes' guards report")
    parser.add_argument("--ship-to", default="", help="host:port of the guard that judges for all")
    parser.add_argument("--attempts-behind", type=int, default=0, help="how many attempts were before ours")


def read_flags(args: argparse.Namespace, env: MutableMapping[str, str]) -> Reporting | None:
    """Return what a guard was told, None if nothing; the token leaves the environment."""
    token = env.pop(TOKEN_ENV, "")
    if not token or (args.listen_fd is None and not args.ship_to):
        return None
    return Reporting(
        token=token,
        listen_fd=args.listen_fd,
        ship_to=args.ship_to,
        attempts_behind=args.attempts_behind,
    )


class Meeting:
    """A launcher's part: node 0 says where it listens, the others take its word."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._token = secrets.token_hex()

    def invite(self, address: str, *, attempt: int) -> str:
        """Return node 0's word to the others, empty where it cannot listen."""
        try:
            self._listener = self._listener or listen(is_local=False)
        except OSError:  # Then every node judges alone.
            return ""
        return f"{address}:{self._listener.getsockname()[1]} {self._token} {attempt}"

    def host(self) -> Reporting | None:
        """Return what node 0's own guard is told."""
        if self._listener is None:
            return None
        return Reporting(token=self._token, listen_fd=self._listener.fileno())

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def accept(word: str, *, attempt: int) -> Reporting | None:
    """Return what the guard of another node is told, by node 0's word; None where there is nobody to tell."""
    match word.split():
        case [address, token, theirs]:
            return Reporting(token=token, ship_to=address, attempts_behind=int(theirs) - attempt)
    return None
