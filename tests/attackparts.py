"""A real ``holdfast serve``, and callers who are less polite than any library."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from holdfast.guard.eventlog import encode
from holdfast.shipment import Run, Shipment
from holdfast.values import AnyEvent, AttemptStarted, RunStarted, Stamp, StepSeen

TOKEN = "token-of-the-attacked-0123456789"
JSON = {"Content-Type": "application/json"}
PATIENCE_S = 60.0
BEGIN: tuple[AnyEvent, ...] = (
    RunStarted(run_id="x", argv=["train.py"], pid=7),
    AttemptStarted(world_size=2, nodes=1, ranks=[0, 1], pids=[8, 9]),
    StepSeen(rank=0, step=0),
    StepSeen(rank=1, step=0),
)


class Attacked:
    """A server of its own, as a person starts it."""

    def __init__(self, folder: Path, *flags: str, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self._output, self._errors = folder / "stdout", folder / "stderr"
        with self._output.open("wb") as out, self._errors.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", "serve", str(self.runs), "--port", "0", *flags],
                env=_clean() | dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        deadline_s = time.monotonic() + 120.0
        while not (found := re.search(r" at (https?://\S+)\n", self._output.read_text())):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline_s, "the server did not say where it is"
            time.sleep(0.02)
        self.url = found[1]
        self.port = urlsplit(self.url).port or 0

    def said(self) -> str:
        """Return all that it wrote."""
        return self._output.read_text() + self._errors.read_text()

    def memory_bytes(self) -> int:
        """Return what it holds in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024

    def client(self, *, token: str | None = TOKEN, **more: Any) -> httpx.Client:
        """Return somebody who calls it; close it after use."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, **more)

    def connect(self) -> socket.socket:
        """Return a bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def say(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes back until the server hangs up or is silent."""
        with self.connect() as connection:
            connection.sendall(data)
            return hear(connection)

    def is_well(self) -> bool:
        """Whether it goes on answering others, and has not met a bug."""
        reply = self.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        is_answering = codes(reply) == [200] and reply.endswith(b"ok\n")
        return is_answering and self.process.poll() is None and "Traceback" not in self.said()


def hear(connection: socket.socket, *, silence_s: float = 0.3) -> bytes:
    """Return what comes, until the other end hangs up or has been silent for a while after it spoke."""
    data = b""
    try:
        while chunk := connection.recv(1 << 16):
            data += chunk
            connection.settimeout(silence_s)
    except (TimeoutError, ConnectionResetError):
        pass
    return data


def codes(reply: bytes) -> list[int]:
    """Return the status of each answer in what came back."""
    return [int(code) for code in re.findall(rb"^HTTP/1\.1 (\d{3})", reply, flags=re.MULTILINE)]


@contextmanager
def attacked(folder: Path, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[Attacked]:
    """Serve until the block ends; it has to end as it should, whatever was done to it."""
    server = Attacked(folder, *flags, env={"HOLDFAST_TOKEN": TOKEN} if env is None else env)
    try:
        yield server
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 0, server.said()
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def make_shipment(key: str, *events: AnyEvent, name: str = "run", **run: Any) -> Shipment:
    """Return what node 0 of a run would send."""
    lines = [msgspec.Raw(make_line(event, number)) for number, event in enumerate(events or BEGIN)]
    return Shipment(run=Run(key=key, name=name, **run), node=0, events=lines)


def make_line(event: AnyEvent, number: int, *, host: str = "a") -> bytes:
    """Return a line of an event log."""
    stamp = Stamp(
        schema=1,
        event_id=f"e{number}",
        at=f"2026-11-17T10:{number // 60 % 60:02}:{number % 60:02}+00:00",
        host=host,
        node=0,
        attempt=0,
    )
    return encode(stamp, event).strip()


def ship(client: httpx.Client, shipment: Shipment) -> httpx.Response:
    """Send a shipment."""
    return client.post("/api/v1/shipments", content=msgspec.json.encode(shipment), headers=JSON)


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
