"""An object store over TCP, as slow as it is told to be for some ranks: real sockets, real waiting.

``python -m profiled.store [--slow RANK ...] [--delay-ms MS]`` prints its port, and serves until it is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import socketserver
import struct
import sys
import time

REQUEST = struct.Struct("=II")
"""Rank and record."""
RECORD_BYTES = 4096


class Store(socketserver.ThreadingTCPServer):
    """Answers each request after a delay."""

    daemon_threads = True
    slow: frozenset[int] = frozenset()
    delay_s = 0.0


class _Handler(socketserver.BaseRequestHandler):
    server: Store

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):  # A job that was ended.
            while len(request := self.request.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
                rank, record = REQUEST.unpack(request)
                if rank in self.server.slow:
                    time.sleep(self.server.delay_s)
                self.request.sendall(record.to_bytes(4, "little") * (RECORD_BYTES // 4))


class Client:
    """A rank's connection to the store."""

    def __init__(self, port: int, rank: int) -> None:
        self._rank = rank
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fetch(self, record: int) -> bytearray:
        """Return a record."""
        self._socket.sendall(REQUEST.pack(self._rank, record))
        content = bytearray(RECORD_BYTES)
        view = memoryview(content)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the store is gone")
            view = view[count:]
        return content


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", type=int, nargs="*", default=[])
    parser.add_argument("--delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    with Store(("127.0.0.1", 0), _Handler) as store:
        store.slow, store.delay_s = frozenset(options.slow), options.delay_ms / 1000
        sys.stdout.write(f"{store.server_address[1]}\n")
        sys.stdout.flush()
        store.serve_forever()


if __name__ == "__main__":
    main()
