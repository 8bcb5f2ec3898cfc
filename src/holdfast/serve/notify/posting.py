"""Post one message to a webhook: one connection, one answer, all of it within a few seconds.

The address is a secret: whoever has it can write into the room. It stands in no error and no log.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import InputError

WEBHOOK_ENV = "HOLDFAST_WEBHOOK"
_MOST_URL_BYTES = 4096
_MOST_REPLY_BYTES = 1 << 12
_LONGEST_WAIT_S = 300.0
"""That a receiver may ask for."""
_EXPECTED = "expected an address such as https://hooks.example.org/services/…"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages go."""

    host: str
    port: int
    is_encrypted: bool
    path: str

    def __repr__(self) -> str:
        return "Address(…)"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt."""

    outcome: Literal["sent", "later", "never"]
    """``later``: it may work when it is tried again; ``never``: it will not."""
    words: str = ""
    wait_s: float = 0.0
    """What the receiver asks to wait."""


def read_webhook(file: str | Path | None, env: Mapping[str, str] = os.environ) -> str | None:
    """Return the address from a file, else from HOLDFAST_WEBHOOK; None where there is none."""
    if file is None:
        text = env.get(WEBHOOK_ENV, "").strip()
        where = WEBHOOK_ENV
    else:
        text, where = _read_file(Path(file)), f"the webhook's file {file}"
    if not text and file is None:
        return None
    try:
        parse_address(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return text


def parse_address(url: str) -> Address:
    """Return the parts of an address; InputError, which does not repeat it, if it is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError(f"the webhook's address cannot be read, {_EXPECTED}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"the webhook's address is not http or https, {_EXPECTED}")
    if not url.isascii() or not url.isprintable() or " " in url or "@" in parts.netloc:
        raise InputError(f"the webhook's address has something in it that does not belong there, {_EXPECTED}")
    is_encrypted = parts.scheme == "https"
    path = parts.path or "/"
    return Address(
        host=host,
        port=port or (443 if is_encrypted else 80),
        is_encrypted=is_encrypted,
        path=f"{path}?{parts.query}" if parts.query else path,
    )


def post(address: Address, body: bytes, *, timeout_s: float = 10.0) -> Answer:
    """Send it once and say what came of it; never raises, and never lasts much longer than the limit."""
    connection = _connect(address, timeout_s)
    # Time-outs of sockets are for each read: who answers in drips would keep us for ever.
    timer = threading.Timer(timeout_s, _cut_off, [connection])
    timer.daemon = True
    timer.start()
    try:
        connection.request(
            "POST", address.path, body, {"Content-Type": "application/json", "User-Agent": "holdfast"}
        )
        response = connection.getresponse()
        # A status is all that is asked for; some of the rest is read so that the sender can end well.
        with contextlib.suppress(OSError, http.client.HTTPException):
            response.read(_MOST_REPLY_BYTES)
        response.close()
        return _judge(response.status, response.getheader("Retry-After") or "")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(outcome="later", words=_describe(error))
    finally:
        timer.cancel()
        connection.close()


def _connect(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    if not address.is_encrypted:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)


def _cut_off(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # It may be over, or not connected yet.
        connection.sock.shutdown(socket.SHUT_RDWR)


def _judge(status: int, retry_after: str) -> Answer:
    if 200 <= status < 300:
        return Answer(outcome="sent")
    words = f"it answers {status}"
    if 300 <= status < 400:
        return Answer(outcome="never", words=f"{words}, and redirects are not followed")
    if status in (408, 425, 429) or status >= 500:
        return Answer(outcome="later", words=words, wait_s=_wait_s(retry_after))
    return Answer(outcome="never", words=words)


def _wait_s(text: str) -> float:
    return min(_LONGEST_WAIT_S, float(text)) if text.isdecimal() and len(text) < 10 else 0.0


def _describe(error: Exception) -> str:
    """Return what is wrong without the words of the error, which could hold the address."""
    match error:
        case TimeoutError():
            return "it does not answer in time"
        case ConnectionRefusedError():
            return "it refuses the connection"
        case socket.gaierror():
            return "its host is not known"
        case ssl.SSLError():
            return f"TLS fails ({error.reason})"
        case OSError() if error.strerror and not error.filename:
            return error.strerror
    return type(error).__name__


def _read_file(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_URL_BYTES).decode("ascii").strip()
    except OSError as error:
        raise InputError(f"the webhook's file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InputError(f"the webhook's file {file} is no text, {_EXPECTED}") from None
