"""A real receiver of messages that can fail in all ways, and runs to tell of."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.incidents.values import Incident, IncidentKind, RunView, Stage, StageName
from holdfast.serve.store.values import RunRow

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
SECRET = "/services/T0/B0/verysecret"

Behaviour = Callable[[socket.socket], None]


def say(text: bytes) -> Behaviour:
    """Answer with these bytes."""
    return lambda connection: connection.sendall(text)


def status(code: int, *headers: str) -> Behaviour:
    """Answer with a status and no body."""
    lines = [f"HTTP/1.1 {code} X", "Content-Length: 0", "Connection: close", *headers]
    return say("\r\n".join(lines).encode() + b"\r\n\r\n")


def hold(until: threading.Event) -> Behaviour:
    """Do not answer until something has happened, and then hang up."""

    def wait(connection: socket.socket) -> None:
        until.wait(20)

    return wait


class Receiver:
    """A server on loopback that does one thing after another with each request, and the last for ever."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = list(behaviours) or [say(OK)]
        self.messages: list[dict[str, Any]] = []
        """Bodies of all requests that came in whole."""
        self.heads: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is; the path is the secret."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}{SECRET}"

    @property
    def texts(self) -> list[str]:
        """What the messages say in short."""
        return [message["text"] for message in self.messages]

    def become(self, *behaviours: Behaviour) -> None:
        """Do something else from now on."""
        self._behaviours = list(behaviours)

    def close(self) -> None:
        """End, and cut off whoever is still connected."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if self._is_closing:
                    return
                self._open.append(connection)
                with contextlib.suppress(OSError, ValueError):
                    self._answer(connection)
                self._open.remove(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        data = b""
        while b"\r\n\r\n" not in data:
            data += _receive(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        while len(body) < length:
            body += _receive(connection)
        self.heads.append(head)
        self.messages.append(msgspec.json.decode(body))
        behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        behaviour(connection)


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ValueError("the sender hung up")
    return data


class MarksInMemory:
    """What was sent, as a store keeps it over restarts of a server."""

    def __init__(self) -> None:
        self.marks: set[tuple[str, str, str]] = set()

    def run(self, key: str) -> RunRow | None:
        """Every run is called the same."""
        return RunRow(
            key=key,
            name="big-run",
            run_id="x",
            host="a",
            started_at="",
            heard_at="",
            step=0,
            nodes=1,
            events=1,
            command=[],
            versions={},
        )

    def mark_sent(self, key: str, incident_id: str, stage: str) -> bool:
        """True the first time only."""
        is_new = (key, incident_id, stage) not in self.marks
        self.marks.add((key, incident_id, stage))
        return is_new

    def unmark_sent(self, key: str, incident_id: str, stage: str) -> None:
        """The next time is the first."""
        self.marks.discard((key, incident_id, stage))


def ago(minutes: float) -> str:
    """A moment before ``NOW``."""
    return (NOW - timedelta(minutes=minutes)).isoformat()


def incident(
    name: str,
    *stages: tuple[StageName, float],
    kind: IncidentKind = "slow",
    ranks: tuple[int, ...] = (),
    lost_s: float = 0.0,
    words: str = "what happened",
) -> Incident:
    """An incident by its stages, each so many minutes before now."""
    return Incident(
        incident_id=name,
        kind=kind,
        opened_at=ago(stages[0][1]),
        closed_at=ago(stages[-1][1]) if stages[-1][0] == "closed" else None,
        stages=tuple(
            Stage(name=stage, at=ago(minutes), words=words, event_id=f"{name}-{number}")
            for number, (stage, minutes) in enumerate(stages)
        ),
        ranks=ranks,
        lost_s=lost_s,
    )


def run_with(*incidents: Incident) -> RunView:
    """A run of eight workers with these incidents."""
    return RunView(run_id="x", state="training", world_size=8, incidents=incidents)
