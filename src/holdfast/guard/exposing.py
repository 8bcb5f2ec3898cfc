"""Shows Prometheus what a guard knows: at a port of this machine, or in a file for node_exporter.

It has threads of its own, reads the event log as anybody could, and never raises: whoever scrapes, and
however, the guard goes on. What is shown is a finished value, made once a second.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import msgspec

from holdfast.errors import InputError
from holdfast.guard.say import Say
from holdfast.telemetry import Summary

_EVERY_S = 1.0
_WRITE_EVERY_S = 5.0
_READ_S = 10.0
"""For a request to be sent, and for its answer to be taken."""
_LASTS_S = 15.0
"""For all of it: who sends a letter now and then is cut off."""
_MOST_AT_ONCE = 64
"""Who are answered; others are hung up on."""


class ExposeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a guard shows what it knows."""

    port: int = 0
    """0: nowhere."""
    host: str = "127.0.0.1"
    file: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"metrics_port is {self.port}, expected 1 to 65535, or 0 for none")
        if self.file is not None and not self.file.endswith(".prom"):
            raise ValueError(f"metrics_file is {self.file!r}, expected a name that ends in .prom")


def add_metrics_flags(parser: argparse.ArgumentParser) -> None:
    """Let a guard be told where to show what it knows."""
    parser.add_argument("--metrics-port", type=int, default=0, help="where Prometheus may ask")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="on which address")
    parser.add_argument("--metrics-file", help="text file for node_exporter")


def name_metrics_flags(settings: ExposeSettings) -> list[str]:
    """Return the flags that say so."""
    return [
        *(["--metrics-port", str(settings.port), "--metrics-host", settings.host] if settings.port else []),
        *(["--metrics-file", settings.file] if settings.file is not None else []),
    ]


def make_exposing(
    args: argparse.Namespace, run_dir: Path, say: Say, env: Mapping[str, str]
) -> Exposing | None:
    """Return what shows this guard's knowledge; None where nobody wants it, or the library is missing."""
    try:
        settings = _read_settings(args, env)
    except (ValueError, InputError) as error:
        say.line(f"metrics are not shown: {error}")
        return None
    if not settings.port and settings.file is None:
        return None
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        words = "prometheus_client is missing: pip install 'holdfast[metrics]'"
        say.once("metrics", f"metrics are not shown: {words}; training goes on")
        return None
    return Exposing(settings, run_dir, node=args.node, key=args.run_key, say=say)


def _read_settings(args: argparse.Namespace, env: Mapping[str, str]) -> ExposeSettings:
    port, host, file = args.metrics_port, args.metrics_host, args.metrics_file
    if args.attached:  # No launcher has read the settings for it.
        port = port or int(env.get("HOLDFAST_METRICS_PORT") or 0)
        host = env.get("HOLDFAST_METRICS_HOST") or host
        file = file or env.get("HOLDFAST_METRICS_FILE") or None
    return ExposeSettings(port=port, host=host, file=file)


class Exposing:
    """One guard's metrics."""

    def __init__(self, settings: ExposeSettings, run_dir: Path, *, node: int, key: str, say: Say) -> None:
        from prometheus_client.registry import CollectorRegistry

        from holdfast.guard.overview import Overview

        self._settings = settings
        self._say = say
        self._overview = Overview(run_dir, node=node, key=key)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._overview)
        self._server: WSGIServer | None = None
        self._written_s = 0.0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, name="holdfast-metrics", daemon=True)]

    @property
    def port(self) -> int | None:
        """Where it listens; None where it does not."""
        return None if self._server is None else self._server.server_port

    def start(self) -> None:
        """Begin."""
        self._threads[0].start()

    def take(self, summary: Summary) -> None:
        """Take in what the workers of this node did; returns at once."""
        self._overview.take(summary)

    def close(self) -> None:
        """End, and take the file away: what it says is no longer so."""
        self._stop.set()
        self._threads[0].join(2.0)
        if self._server is not None:
            self._server.shutdown()
            self._threads[-1].join(2.0)
        if self._settings.file is not None:
            with contextlib.suppress(OSError):
                Path(self._settings.file).unlink()

    # --- in the threads -----------------------------------------------------------------------

    def _run(self) -> None:
        self._refresh()
        if self._settings.port:
            self._listen()
        while not self._stop.wait(_EVERY_S):
            self._refresh()

    def _refresh(self) -> None:
        try:
            self._overview.refresh(time.time())
            self._write()
        except Exception as error:
            self._say.once("metrics", f"metrics are not shown any more: {error!r}; training goes on")

    def _listen(self) -> None:
        from prometheus_client import make_wsgi_app

        host, port = self._settings.host, self._settings.port
        try:
            kind = _Server6 if ":" in host else _Server
            server = kind((host, port), _Handler)
        except (OSError, OverflowError) as error:
            words = getattr(error, "strerror", None) or str(error)
            self._say.once("metrics port", f"no metrics at {host}:{port}: {words}; training goes on")
            return
        server.set_app(make_wsgi_app(self._registry))
        self._server = server
        thread = threading.Thread(target=self._serve, args=[server], name="holdfast-scraped", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, server: WSGIServer) -> None:
        with server:
            server.serve_forever(poll_interval=0.2)

    def _write(self) -> None:
        from prometheus_client import write_to_textfile

        file = self._settings.file
        if file is None or time.monotonic() - self._written_s < _WRITE_EVERY_S:
            return
        self._written_s = time.monotonic()
        try:
            write_to_textfile(file, self._registry)
        except OSError as error:
            self._say.once("metrics file", f"cannot write {file}: {error.strerror}; training goes on")


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; where there are too many, hang up: they are not to cost the guard more."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Make room afterwards."""
        timer = threading.Timer(_LASTS_S, _cut, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who hung up too early knows it."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _READ_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called above.
        """Say nothing: it is asked every few seconds."""
