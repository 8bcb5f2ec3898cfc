"""A real server on a port of its own, in a thread; and what guards would send to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn

from helpers import wait_until
from holdfast.guard.eventlog import encode
from holdfast.serve.store import Store
from holdfast.serve.web.app import make_app
from holdfast.serve.web.context import Context
from holdfast.serve.web.server import configure
from holdfast.serve.web.settings import Settings
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary
from holdfast.values import AnyEvent, AttemptStarted, RunStarted, Stamp, StepSeen

TOKEN = "a token of the tests, long enough".replace(" ", "-")
BEGIN: tuple[AnyEvent, ...] = (
    RunStarted(run_id="x", argv=["train.py"], pid=7),
    AttemptStarted(world_size=2, nodes=1, ranks=[0, 1], pids=[8, 9]),
    StepSeen(rank=0, step=0),
    StepSeen(rank=1, step=0),
)


class Running:
    """A server that listens."""

    def __init__(self, context: Context, url: str, server: uvicorn.Server) -> None:
        self.context = context
        self.url = url
        self._server = server

    def stop(self) -> None:
        """Have it end."""
        self._server.should_exit = True

    def client(self, *, token: str | None = None, **more: Any) -> httpx.Client:
        """Return somebody who calls it; close it after use."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers | more.pop("headers", {}), timeout=30, **more)


@contextmanager
def running(store: Store, **fields: Any) -> Iterator[Running]:
    """Serve a store until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = Settings(**({"token": TOKEN, "port": port} | fields))
    server: uvicorn.Server
    app = make_app(store, settings, is_ending=lambda: server.should_exit)
    server = uvicorn.Server(configure(app, msgspec.structs.replace(settings, tls_cert=None)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the server")
        yield Running(app.state.context, f"http://127.0.0.1:{port}", server)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Open a store of its own."""
    store = Store.open(str(folder / "store.sqlite"))
    try:
        yield store
    finally:
        store.close()


def make_line(event: AnyEvent, number: int, *, node: int = 0, attempt: int = 0) -> bytes:
    """Return a line of an event log, with its end."""
    at = datetime.now(UTC).isoformat()
    stamp = Stamp(schema=1, event_id=f"{node}-{number}", at=at, host="a", node=node, attempt=attempt)
    return encode(stamp, event)


def make_summary(step: int, *, node: int = 0, step_s: float = 0.5) -> Summary:
    """Return a row of two ranks."""
    ranks = (str(2 * node), str(2 * node + 1))
    return Summary(
        at=datetime.now(UTC).isoformat(),
        node=node,
        attempt=0,
        steps=dict.fromkeys(ranks, step),
        duration_s=dict.fromkeys(ranks, step_s),
    )


def make_shipment(
    key: str = "k", events: Sequence[AnyEvent] = BEGIN, *, first: int = 1, steps: Sequence[int] = ()
) -> Shipment:
    """Return what node 0 of a run would send."""
    return Shipment(
        run=Run(key=key, name=f"run of {key}", command=["train.py"]),
        node=0,
        events=[
            msgspec.Raw(make_line(event, number)[:-1]) for number, event in enumerate(events, start=first)
        ],
        summaries=[make_summary(step) for step in steps],
    )


def ship(client: httpx.Client, shipment: Shipment) -> httpx.Response:
    """Send a shipment."""
    return client.post(
        "/api/v1/shipments",
        content=msgspec.json.encode(shipment),
        headers={"Content-Type": "application/json"},
    )
