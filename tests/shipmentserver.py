"""A server for tests that keeps what it was sent, and can be told to fail in every way that servers do."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from holdfast.shipment import Order, Receipt, Shipment


class ShipmentServer:
    """Of one test; ``fail`` with a status, or one of the words below, until told otherwise."""

    def __init__(self, port: int = 0, certificate: Path | None = None) -> None:
        self.shipments: list[Shipment] = []
        """Those that were acknowledged, or were to be."""
        self.tokens: list[str | None] = []
        self.events: dict[str, dict[str, Any]] = {}
        """By event id; the same one twice is one."""
        self.rows: dict[tuple[int, str], int] = {}
        """How often a row of a node and time was sent."""
        self.orders: list[Order] = []
        self.every_s = 1.0
        self.refused: list[str] = []
        self.refused_more = 0
        """Lines for which no reason is given."""
        """What the next receipt says of it."""
        self.requests = 0
        self.fail: int | str | None = None
        self.headers: dict[str, str] = {}
        """Of answers that are failures."""
        self.most_bytes: int | None = None
        """Larger bodies are answered with 413."""
        self.bad_words: bytes | None = None
        """Bodies that have them are answered with 400."""
        self.hold = threading.Event()
        """Set to let go of requests that are held, with ``fail`` being ``hold``."""
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.mine = self
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def names(self) -> list[str]:
        """Names of all events, in the order in which they came."""
        return [event["name"] for event in self.events.values()]

    def close(self) -> None:
        """Be away."""
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes) -> int:
        """Keep a shipment; return how many lines it has."""
        shipment = msgspec.json.decode(body, type=Shipment)
        self.shipments.append(shipment)
        for raw in shipment.events:
            event = msgspec.json.decode(raw)
            self.events[event["event_id"]] = event
        for row in shipment.summaries:
            place = (row.node, row.at)
            self.rows[place] = self.rows.get(place, 0) + 1
        return len(shipment.events) + len(shipment.summaries)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    mine: ShipmentServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away as they like."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        mine = self.server.mine
        mine.requests += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        mine.tokens.append(self.headers.get("Authorization"))
        assert self.path == "/api/v1/shipments"
        assert self.headers["Content-Type"] == "application/json"
        if mine.fail is not None:
            self._fail(mine.fail, body)
        elif mine.most_bytes is not None and len(body) > mine.most_bytes:
            self._answer(413, b"too large")
        elif mine.bad_words is not None and mine.bad_words in body:
            self._answer(400, b"not understood")
        else:
            self._receive(mine.take(body))

    def _receive(self, lines: int) -> None:
        mine = self.server.mine
        refused, mine.refused = mine.refused, []
        taken = max(0, lines - len(refused) - mine.refused_more)
        receipt = Receipt(taken=taken, refused=refused, orders=mine.orders, every_s=mine.every_s)
        self._answer(200, msgspec.json.encode(receipt))

    def _fail(self, how: int | str, body: bytes) -> None:
        mine = self.server.mine
        match how:
            case int():
                self._answer(how, b"no")
            case "garbage":
                self._answer(200, b"<html>welcome</html>")
            case "huge":
                self._answer(200, b"[" * (3 << 20))
            case "reset":
                mine.take(body)  # It has it, but nobody hears of that.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.close_connection = True
                self.connection.close()
            case "drip":
                self._drip()
            case "hold":
                mine.take(body)
                mine.hold.wait(60)
                self.close_connection = True

    def _drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.mine.hold.wait(0.1):
                self.wfile.write(b" ")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.server.mine.headers.items() if status != 200 else ():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def serving(port: int = 0, certificate: Path | None = None) -> Iterator[ShipmentServer]:
    """A server that is there, and is closed at the end if it was not before."""
    server = ShipmentServer(port, certificate)
    try:
        yield server
    finally:
        with contextlib.suppress(OSError):
            server.close()
