"""The outermost layer: what is refused before anything looks at it, and what every answer carries.

No exception passes it: the caller gets one line, the log the rest, once.
"""

from __future__ import annotations

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.serve.web.settings import Settings
from holdfast.serve.web.trouble import answer_failure, refuse

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")
_MOST_PATH = 2048
_MOST_QUERY = 4096
_FIXED = {
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": with it browsers hide the origin of our own forms from us.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Outermost:
    """Checks host and lengths, adds headers, answers for what fails."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = known_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {}).update(nonce=nonce, session=None, has_token=False)
        is_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                add_headers(MutableHeaders(scope=message), nonce)
            await send(message)

        request = Request(scope, receive)
        try:
            why = self._refusal(scope)
            app = self._app if why is None else refuse(request, *why)
            await app(scope, receive, send_with_headers)
        except ClientDisconnect:  # Nobody is there to be told.
            pass
        except Exception as error:
            response = answer_failure(request, error)
            if not is_begun:  # Else uvicorn breaks the connection, so that nobody takes a part for all.
                await response(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        if len(scope["path"]) > _MOST_PATH or len(scope.get("query_string", b"")) > _MOST_QUERY:
            return 414, "the address is too long", {}
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may believe the other one, and take what follows for somebody else's request.
            return 400, "expected Content-Length or Transfer-Encoding, not both", {"Connection": "close"}
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not host_name(hosts[0]):
            return 400, "expected one Host header, with a name", {}
        if self._hosts is not None and host_name(hosts[0]) not in self._hosts:
            return 421, f"the host {hosts[0][:80]!r} is not known here; --allow-host adds one", {}
        return None


def known_hosts(settings: Settings) -> frozenset[str] | None:
    """Return the names by which the server may be called; None: any, as nothing is to be had without a token.

    A page elsewhere can give its own name the address of loopback; the browser then takes us for that page.
    """
    if not settings.is_loopback and not settings.allowed_hosts:
        return None
    return _LOOPBACK | {settings.host.lower()} | {host.lower() for host in settings.allowed_hosts}


def host_name(header: str) -> str:
    """Return the name in a Host header, without the port; empty where it is none."""
    found = _HOST.fullmatch(header)
    return found["name"].strip("[]").lower() if found is not None else ""


def add_headers(headers: MutableHeaders, nonce: str) -> None:
    """Add what every answer carries."""
    for name, value in _FIXED.items():
        headers[name] = value
    headers["Content-Security-Policy"] = "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'self' 'nonce-{nonce}'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
    )
    headers.setdefault("Cache-Control", "no-store")
