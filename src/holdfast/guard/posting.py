"""Hand one shipment to a server by HTTP, with nothing but the standard library.

Every way in which that can fail comes back as a value: the guard lives in the user's training environment,
and its loop must not notice what a server far away is like.
"""

from __future__ import annotations

import contextlib
import email.utils
import gzip
import http.client
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import InputError
from holdfast.shipment import Receipt, Shipment

_RECEIPT = msgspec.json.Decoder(Receipt)
TOKEN_ENV = "HOLDFAST_TOKEN"
CA_ENV = "HOLDFAST_CA_FILE"
PATH = "/api/v1/shipments"
TIMEOUT_S = 10.0
_MOST_REPLY_BYTES = 1 << 20
_MOST_TOKEN_BYTES = 4096
_TOKEN = re.compile(r"[!-~]{1,4096}")
_GZIP_FROM_BYTES = 2048
_LONGEST_WAIT_S = 300.0
"""That a server may ask for."""

Failure = Literal["away", "refused", "too large", "not allowed", "busy", "no receipt"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is."""

    url: str
    """As it was given, without a last slash."""
    host: str
    port: int
    is_encrypted: bool
    path: str
    """Before ours."""

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that nobody can listen on the way."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"


def parse_server(url: str) -> Server:
    """Return a server's address; InputError if it is none."""
    expected = "expected such as https://holdfast.example.org or http://127.0.0.1:8417"
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"server is {url!r}: {error}; {expected}") from None
    if "@" in parts.netloc:  # Not repeated: it may be a password.
        raise InputError(f"server has a name or password in its address; give a token instead, {expected}")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InputError(f"server is {url!r}, {expected}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"server is {url!r}, {expected}")
    is_encrypted = parts.scheme == "https"
    return Server(
        url=url.rstrip("/"),
        host=host,
        port=port or (443 if is_encrypted else 80),
        is_encrypted=is_encrypted,
        path=parts.path.rstrip("/"),
    )


def token_reader(env: Mapping[str, str], file: str | None) -> Callable[[], str]:
    """Return how to get the token; a file is read every time, since it may be replaced."""
    fixed = env.get(TOKEN_ENV, "").strip()

    def read() -> str:
        if file is None:
            return fixed
        with contextlib.suppress(OSError, UnicodeDecodeError), Path(file).open("rb") as opened:
            return opened.read(_MOST_TOKEN_BYTES).decode("ascii").strip()
        return ""

    return read


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt."""

    receipt: Receipt | None = None
    """None: it failed."""
    failure: Failure = "away"
    words: str = ""
    """Why it failed."""
    wait_s: float = 0.0
    """What the server asks to wait before the next."""


class Poster:
    """One connection to a server, opened again when it is lost."""

    def __init__(self, server: Server, token: Callable[[], str], *, ca_file: str | None = None) -> None:
        self.server = server
        self._token = token
        self._ca_file = ca_file
        self._connection: http.client.HTTPConnection | None = None

    @property
    def has_token(self) -> bool:
        """Whether it has a token to show."""
        return bool(self._token())

    def post(self, shipment: Shipment, *, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Send a shipment and return what came of it; never raises."""
        token = self._token()
        if token and not _TOKEN.fullmatch(token):  # Not repeated: it is a secret, or another one by mistake.
            return Outcome(failure="not allowed", words="the token is no single word of plain letters")
        body = msgspec.json.encode(shipment)
        was_open = self._connection is not None
        outcome = self._try(body, token, timeout_s)
        if outcome is None and was_open:  # The server may have closed a connection that was idle.
            outcome = self._try(body, token, timeout_s)
        return outcome or Outcome(failure="away", words="the server closed the connection")

    def close(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _try(self, body: bytes, token: str, timeout_s: float) -> Outcome | None:
        """Return what came of it; None if the connection was lost without an answer."""
        over_s = time.monotonic() + timeout_s
        try:
            status, headers, reply = self._exchange(body, token, over_s)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            was_refused = isinstance(error, ConnectionRefusedError)
            self.close()
            return Outcome(failure="away", words=_describe(error)) if was_refused else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return Outcome(failure="away", words=_describe(error))
        if status != 200 or self._connection is None or self._connection.sock is None:
            self.close()
        return _judge(status, headers, reply)

    def _exchange(self, body: bytes, token: str, over_s: float) -> tuple[int, dict[str, str], bytes]:
        connection = self._connected(over_s)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if len(body) >= _GZIP_FROM_BYTES:
            body = gzip.compress(body, 3)
            headers["Content-Encoding"] = "gzip"
        with _limited(connection.sock, over_s):
            return _ask(connection, self.server.path + PATH, body, headers)

    def _connected(self, over_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._open(_left(over_s))
            self._connection.connect()
        return self._connection

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        server = self.server
        if not server.is_encrypted:
            return http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(server.host, server.port, timeout=timeout_s, context=context)


def make_poster(url: str, *, token_file: str | None = None, env: Mapping[str, str] = os.environ) -> Poster:
    """Return what sends to a server, as flags and environment say."""
    return Poster(parse_server(url), token_reader(env, token_file), ca_file=env.get(CA_ENV) or None)


def _ask(
    connection: http.client.HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, dict[str, str], bytes]:
    # A server may answer before it has read everything, and close: that the body is too large, say.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request("POST", path, body, dict(headers))
    response = connection.getresponse()
    reply = response.read(_MOST_REPLY_BYTES + 1)
    if len(reply) > _MOST_REPLY_BYTES:
        raise ValueError(f"its answer has more than {_MOST_REPLY_BYTES} bytes")
    if response.length:
        raise http.client.IncompleteRead(reply, response.length)
    return response.status, {name.lower(): value for name, value in response.getheaders()}, reply


@contextlib.contextmanager
def _limited(sock: socket.socket, over_s: float) -> Iterator[None]:
    """Cut a connection off when its time is over: each drop of an answer that drips would begin it anew."""
    left_s = _left(over_s)
    sock.settimeout(left_s)
    timer = threading.Timer(left_s, _cut, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
        _left(over_s)
    finally:
        timer.cancel()


def _cut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _left(over_s: float) -> float:
    left_s = over_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _judge(status: int, headers: Mapping[str, str], reply: bytes) -> Outcome:
    if status == 200:
        try:
            return Outcome(receipt=_RECEIPT.decode(reply))
        except (msgspec.MsgspecError, RecursionError) as error:
            return Outcome(failure="no receipt", words=f"its answer is no receipt: {error}")
    words = f"it answers {status}{_reason(reply)}"
    if status in (400, 422):
        return Outcome(failure="refused", words=words)
    if status == 413:
        return Outcome(failure="too large", words=words)
    if status in (401, 403):
        return Outcome(failure="not allowed", words=words)
    if 300 <= status < 400:
        return Outcome(
            failure="no receipt", words=f"{words}: it is somewhere else, and redirects are not followed"
        )
    if status in (429, 503):
        return Outcome(failure="busy", words=words, wait_s=_wait_s(headers.get("retry-after", "")))
    return Outcome(failure="away" if status >= 500 else "no receipt", words=words)


def _reason(reply: bytes) -> str:
    """Return the first words of an answer that are fit to be shown."""
    text = " ".join(reply[:400].decode(errors="replace").split())
    shown = "".join(each for each in text if each.isprintable())[:120]
    return f" ({shown})" if shown else ""


def _wait_s(text: str) -> float:
    """Return what ``Retry-After`` says: seconds, or a date."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return min(_LONGEST_WAIT_S, max(0.0, float(int(text))))
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        until_s = email.utils.parsedate_to_datetime(text).timestamp()
        return min(_LONGEST_WAIT_S, max(0.0, until_s - time.time()))
    return 0.0


def _describe(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror or error or type(error).__name__).splitlines()[0][:200]
