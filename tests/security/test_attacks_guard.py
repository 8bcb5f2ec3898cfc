"""What strangers can do to a guard at its metrics port: be hung up on.

Forged messages of guards and workers are in ``tests/guard/test_collecting_strangers.py`` and
``tests/guard/test_hub*.py``, forged orders in ``tests/guard/test_asked.py``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from attackparts import BEGIN, make_line
from helpers import Ears, wait_until
from holdfast.guard import exposing
from holdfast.guard.exposing import ExposeSettings, Exposing


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Where a guard shows its metrics."""
    pytest.importorskip("prometheus_client")
    lines = b"".join(make_line(event, number) + b"\n" for number, event in enumerate(BEGIN))
    (tmp_path / "events.jsonl").write_bytes(lines)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    ears = Ears()
    shown = Exposing(ExposeSettings(port=free), tmp_path, node=0, key="k", say=ears.say)
    shown.start()
    try:
        wait_until(lambda: shown.port is not None, "the port")
        yield free
    finally:
        shown.close()
        ears.close()


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def _can_scrape(port: int) -> bool:
    with contextlib.suppress(OSError):
        return "holdfast_" in _scrape(port)
    return False


def test_who_only_connects_costs_a_guard_a_bounded_number_of_threads(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who sends a letter now and then; afterwards the port answers again."""
    monkeypatch.setattr(exposing, "_LASTS_S", 2.0)
    before = threading.active_count()
    strangers = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(150)]
    try:
        for stranger in strangers:
            with contextlib.suppress(OSError):
                stranger.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert threading.active_count() - before <= 2 * exposing._MOST_AT_ONCE + 2
        until_s = time.monotonic() + 20
        while not _can_scrape(port):
            assert time.monotonic() < until_s, "the strangers were not cut off"
            for stranger in strangers:
                with contextlib.suppress(OSError):
                    stranger.send(b"y")
            time.sleep(0.1)
    finally:
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize(
    "words",
    [
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"\0\xff\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics?name[]=%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\n\r\n",
    ],
)
def test_whatever_is_sent_there_a_guard_goes_on(port: int, words: bytes) -> None:
    """It shows metrics, or refuses, and nothing else."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
        stranger.sendall(words)
        reply = b""
        with contextlib.suppress(OSError):
            while chunk := stranger.recv(1 << 16):
                reply += chunk
    assert b"root:" not in reply
    assert b"set-cookie" not in reply.lower()
    assert _can_scrape(port)
