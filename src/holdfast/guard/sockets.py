"""Sockets of a server whose clients may vanish together with their machines."""

from __future__ import annotations

import socket

_OPTIONS = {
    socket.TCP_KEEPIDLE: 1,
    socket.TCP_KEEPINTVL: 1,
    socket.TCP_KEEPCNT: 3,
    # The same patience, in milliseconds, while data is not acknowledged: then no probes are sent.
    socket.TCP_USER_TIMEOUT: 4000,
    socket.TCP_NODELAY: 1,
}


def listen(*, is_local: bool) -> socket.socket:
    """Return a socket that listens on a free port: of this machine alone, or of all its interfaces."""
    if is_local:
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def notice_loss(connection: socket.socket) -> None:
    """Make a peer whose machine vanishes without a word be noticed within seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _OPTIONS.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
