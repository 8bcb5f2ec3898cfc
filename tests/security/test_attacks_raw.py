"""Bytes that no library would send: smuggling, bodies without an end, addresses that lead elsewhere."""

from __future__ import annotations

import contextlib
import gzip
import json
import time

import pytest

from attackparts import JSON, TOKEN, Attacked, codes, hear, make_shipment, ship
from holdfast.serve.web.connection import HEAD_S, LINGER_S
from holdfast.shipment import MOST_BYTES

pytestmark = pytest.mark.processes

_HOST = b"Host: localhost\r\n"
_TOKEN = f"Authorization: Bearer {TOKEN}\r\n".encode()
_JSON = b"Content-Type: application/json\r\n"
_SHIP = b"POST /api/v1/shipments HTTP/1.1\r\n" + _HOST + _TOKEN + _JSON
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_SMUGGLED = b"GET /healthz HTTP/1.1\r\n" + _HOST + b"\r\n"


# --- two lengths, or none -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes",
    [
        _SHIP + b"Content-Length: 5\r\n" + _CHUNKED + b"\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + _CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + _SMUGGLED,
        _SHIP + b"Content-Length: 5, 6\r\n\r\nhello" + _SMUGGLED,
        _SHIP + b"Content-Length: -1\r\n\r\n" + _SMUGGLED,
        _SHIP + b"Content-Length: +5\r\n\r\nhello" + _SMUGGLED,
        _SHIP + b"Content-Length: 0x5\r\n\r\nhello" + _SMUGGLED,
        _SHIP + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nhello" + _SMUGGLED,
        _SHIP + b"Transfer-Encoding: identity\r\n\r\n" + _SMUGGLED,
        _SHIP + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + _CHUNKED + b"\r\n-1\r\nhello\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + _CHUNKED + b"\r\n0x5\r\nhello\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + _CHUNKED + b"\r\n\r\nhello\r\n0\r\n\r\n" + _SMUGGLED,
        _SHIP + _CHUNKED + b"\r\n5\r\nhelloXX0\r\n\r\n" + _SMUGGLED,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n" + _SMUGGLED,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n" + _SMUGGLED,
        b"GET /healthz HTTP/1.1\r\n" + _HOST + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n" + _SMUGGLED,
        b"GET /healthz HTTP/1.1\r\n" + _HOST + b"X: a\r\n" * 50_000 + b"\r\n" + _SMUGGLED,
        b"GET /healthz HTTP/1.0\r\n\r\n" + _SMUGGLED,
        b"\x16\x03\x01\x02\x00\x01" + b"\xff" * 100 + b"\r\n\r\n" + _SMUGGLED,
    ],
)
def test_a_request_of_which_two_could_be_read_is_refused_and_ends_the_connection(
    server: Attacked, request_bytes: bytes
) -> None:
    """What follows it is never answered: somebody in between may take it for another's."""
    assert codes(server.say(request_bytes)) == [400]
    assert server.is_well()


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: local\r\n host\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nHost: 2130706433\r\n\r\n", 421),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET http://evil.example/api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (b"CONNECT evil.example:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (
            b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            401,
        ),
    ],
)
def test_other_hosts_and_methods_get_nothing(server: Attacked, head: bytes, code: int) -> None:
    """A name that leads here from elsewhere (DNS rebinding), a proxy's request, an upgrade."""
    assert codes(server.say(head)) == [code]


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/static/", "/runs/", "/api/v1/runs/", "/runs/k/part/", "/"])
@pytest.mark.parametrize(
    "path",
    [
        "../../../../etc/passwd",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "%252e%252e%252f%252e%252e%252fetc%252fpasswd",
        "..\\..\\..\\etc\\passwd",
        "..%5c..%5cetc%5cpasswd",
        "%c0%ae%c0%ae%c0%af%c0%ae%c0%ae%c0%afetc%c0%afpasswd",
        "%00",
        "holdfast.js%00.html",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "file:///etc/passwd",
        ".holdfast/token",
        "../templates/base.html",
        "a%0d%0aSet-Cookie:%20evil=1",
        "'%20OR%20'1'='1",
        "k';DROP%20TABLE%20runs;--",
        "{{7*7}}",
        "x" * 1500,
    ],
)
def test_no_address_leads_to_a_file_or_into_a_header(server: Attacked, prefix: str, path: str) -> None:
    """What is not a name of ours is not found, and nothing of it comes back but text."""
    head = f"GET {prefix}{path} HTTP/1.1\r\n".encode() + _HOST + _TOKEN
    for accept in (b"", b"Accept: text/html\r\n"):
        reply = server.say(head + accept + b"Connection: close\r\n\r\n")
        assert codes(reply) == [404], reply
        assert b"root:" not in reply
        assert TOKEN.encode() not in reply
        assert b"set-cookie" not in reply.partition(b"\r\n\r\n")[0].lower()
        assert b">49<" not in reply


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", "%", "_", "\\", "';DROP TABLE runs;--", '"', "$$", "x' UNION"]
)
def test_search_text_is_text(server: Attacked, text: str) -> None:
    """No letter of it is part of a question to the database."""
    with server.client() as client:
        assert ship(client, make_shipment("plain-key", name="plain")).status_code == 200
        answer = client.get("/api/v1/runs", params={"text": text})
        assert (answer.status_code, answer.json()) == (200, {"runs": []})
        assert client.get("/", params={"text": text}).status_code == 200
        assert len(client.get("/api/v1/runs", params={"text": "plain"}).json()["runs"]) == 1


# --- too much -----------------------------------------------------------------------------------


def _many_keys() -> bytes:
    return json.dumps({f"key {number}": number for number in range(100_000)}).encode()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b" " * (MOST_BYTES + 1), 413),
        (b'{"run":{"key":"k","name":"n"},"node":0,"x":' + b"[" * 1_000_000, 400),
        (b'{"run":' * 500_000, 400),
        (b'{"run":{"key":"k","name":"n"},"node":' + b"9" * 1_000_000 + b"}", 400),
        (b'{"run":{"key":"k","name":"n"},"node":1e999999999}', 400),
        (b'{"run":{"key":"k","name":"n"},"node":0,"schema":' + b"9" * 4000 + b"}", 400),
        (b'{"run":{"key":"k","name":"n","versions":' + _many_keys() + b'},"node":0}', 400),
        (b'{"run":{"key":"k","name":"n","command":[' + b'"",' * 20_000 + b'""]},"node":0}', 400),
        (_many_keys(), 400),
        (b"\xff" * 1000, 400),
        (b'{"run":{"key":"\\ud800","name":"n"},"node":0}', 400),
    ],
)
def test_bodies_that_are_too_much_are_refused(server: Attacked, body: bytes, code: int) -> None:
    """Too long, too deep, too large a number, too many keys."""
    with server.client() as client:
        assert client.post("/api/v1/shipments", content=body, headers=JSON).status_code == code
    assert server.is_well()


def test_events_that_are_nested_too_deeply_or_too_large_are_refused_one_by_one(server: Attacked) -> None:
    """Those beside them are kept."""
    good = make_shipment("deep")
    deep = b'{"x":' * 20_000 + b"1" + b"}" * 20_000
    long = b'{"x":"' + b"y" * 300_000 + b'"}'
    events = b",".join([*(bytes(event) for event in good.events), deep, long])
    body = b'{"run":{"key":"deep","name":"n"},"node":0,"events":[' + events + b"]}"
    with server.client() as client:
        answer = client.post("/api/v1/shipments", content=body, headers=JSON)
    assert answer.status_code == 400 or (answer.json()["taken"], len(answer.json()["refused"])) == (4, 2)
    assert server.is_well()


def test_a_bomb_of_gzip_costs_no_more_than_a_shipment(server: Attacked) -> None:
    """It is unpacked only up to what a shipment may have, also when many come at once."""
    bomb = gzip.compress(b" " * (1 << 28), 1)
    before = server.memory_bytes()
    with server.client() as client:
        for _ in range(8):
            answer = client.post(
                "/api/v1/shipments", content=bomb, headers=JSON | {"Content-Encoding": "gzip"}
            )
            assert answer.status_code == 413
    assert server.memory_bytes() - before < 100 << 20


def test_a_body_that_never_ends_is_cut_off_and_not_kept(server: Attacked) -> None:
    """With the token or without, on an address that reads it or not."""
    before = server.memory_bytes()
    form = b"Content-Type: application/x-www-form-urlencoded\r\n"
    heads = [
        _SHIP,
        b"POST /api/v1/shipments HTTP/1.1\r\n" + _HOST,
        b"POST /sign-in HTTP/1.1\r\n" + _HOST + form,
        b"GET /healthz HTTP/1.1\r\n" + _HOST,
    ]
    connections = [server.connect() for _ in heads]
    for connection, head in zip(connections, heads, strict=True):
        connection.sendall(head + _CHUNKED + b"\r\n")
        connection.setblocking(False)
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    deadline_s = time.monotonic() + LINGER_S + 30
    while connections:
        assert time.monotonic() < deadline_s, f"{len(connections)} still go on"
        for connection in list(connections):
            try:
                with contextlib.suppress(BlockingIOError):
                    for _ in range(50):
                        connection.send(chunk)
            except OSError:
                connections.remove(connection)
                connection.close()
        time.sleep(0.05)
    assert server.memory_bytes() - before < 50 << 20
    assert server.is_well()


def test_heads_that_drip_are_cut_off_while_others_are_served(server: Attacked) -> None:
    """Hundreds of them do not keep anybody else waiting, and none lasts."""
    begun_s = time.monotonic()
    connections = [server.connect() for _ in range(400)]
    try:
        for number, connection in enumerate(connections):
            connection.sendall(b"GET / HTTP/1.1\r\n" if number % 2 else b"")
        assert server.is_well()
        for connection in connections[:20]:
            while hear(connection, silence_s=0.01) == b"" and time.monotonic() - begun_s < HEAD_S / 2:
                connection.send(b"X: y\r\n")
        for connection in connections:
            connection.settimeout(max(0.1, begun_s + HEAD_S + 20 - time.monotonic()))
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
        assert server.is_well()
    finally:
        for connection in connections:
            connection.close()


def test_pages_that_listen_are_counted_and_make_room_when_they_go(server: Attacked) -> None:
    """Two hundred may; the next is told to come again, and everything else goes on."""
    head = b"GET /api/v1/live HTTP/1.1\r\n" + _HOST + _TOKEN + b"\r\n"
    listening = [server.connect() for _ in range(201)]
    try:
        for connection in listening:
            connection.sendall(head)
        first = [connection.recv(12) for connection in listening]
        assert (first.count(b"HTTP/1.1 200"), first.count(b"HTTP/1.1 503")) == (200, 1)
        assert server.is_well()
    finally:
        for connection in listening:
            connection.close()
    deadline_s = time.monotonic() + 30
    while codes(server.say(head)[:20]) != [200]:
        assert time.monotonic() < deadline_s
    assert server.is_well()


def test_nonsense_does_not_fill_the_log(server: Attacked) -> None:
    """It is said once in a while that there is some."""
    for _ in range(50):
        server.say(b"\0\r\n\r\n")
    assert server.said().count("Invalid HTTP request") <= 3
