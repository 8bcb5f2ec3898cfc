"""Who may do what: the token opens everything, a session what a person does, nobody else changes anything.

| request | needs |
| --- | --- |
| ``/healthz``, ``/sign-in``, ``/static/…`` | nothing |
| other GET | nothing where reading is open, else token or session |
| ``POST /api/v1/shipments`` | the token |
| any other that changes something | the token; or a session, and that it comes from our own page |
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.web.sessions import Session, Sessions
from holdfast.serve.web.settings import Settings
from holdfast.serve.web.trouble import is_json_wanted, refuse, say_sometimes

SHIPMENTS = "/api/v1/shipments"
_OPEN = ("/healthz", "/sign-in")
_READING = ("GET", "HEAD")
_MOST_TYPED = 10
_MOST_SENT = 300
"""Many nodes of one job, behind one address, may all have the same wrong token; others there may not."""
_WITHIN_S = 60.0
_MOST_ADDRESSES = 10_000


class Gate:
    """Lets a request through, or answers it."""

    def __init__(self, app: ASGIApp, settings: Settings, guarding: Guarding) -> None:
        self._app = app
        self._settings = settings
        self._sessions, self._tokens, self._counters = guarding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        state = scope.setdefault("state", {})
        state["session"] = find_session(request, self._settings, self._sessions)
        state["has_token"] = False
        try:
            state["has_token"] = self._has_token(request)
            app = self._app if self._may_pass(request, state["session"]) else _ask_to_sign_in(request)
        except HTTPException as error:
            if scope["path"] == SHIPMENTS:
                self._counters.add("rejected")
            app = refuse(request, error.status_code, error.detail, dict(error.headers or {}))
        await app(scope, receive, send)

    def _has_token(self, request: Request) -> bool:
        """Return whether the token was shown; refuse a wrong one, wherever it is shown."""
        shown = request.headers.getlist("authorization")
        if not shown:
            return False
        kind, _, token = shown[0].partition(" ")
        if kind.lower() != "bearer" or len(shown) > 1:
            raise HTTPException(401, "Authorization is no Bearer token", {"WWW-Authenticate": "Bearer"})
        self._tokens.check(token.strip(), address_of(request))
        return True

    def _may_pass(self, request: Request, session: Session | None) -> bool:
        path, has_token = request.scope["path"], request.state.has_token
        if path in _OPEN or (path.startswith("/static/") and request.method in _READING) or has_token:
            return True
        if request.method in _READING:
            return self._settings.is_reading_open or session is not None
        if path == SHIPMENTS or session is None:
            raise HTTPException(401, "this needs the token", {"WWW-Authenticate": "Bearer"})
        check_same_origin(request)
        return True


class Tokens:
    """Compares tokens; an address that shows too many wrong ones is told to wait.

    The right one passes all the same: else whoever shares an address with its owner, as all users of one
    machine do, could lock the owner out. A token is too long to be guessed.
    """

    def __init__(self, token: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._token = _digest(token)
        self._now = now
        self._failures: OrderedDict[tuple[str, int], tuple[float, int]] = OrderedDict()
        """Since when, and how many, by address and by how many there may be."""

    def check(self, shown: str, address: str, *, is_typed: bool = False) -> None:
        """Return if it is the token; refuse the request if not."""
        if hmac.compare_digest(_digest(shown), self._token):
            return
        who = address, _MOST_TYPED if is_typed else _MOST_SENT
        since_s, count = self._failures.get(who, (self._now(), 0))
        left_s = since_s + _WITHIN_S - self._now()
        if left_s <= 0:
            since_s, count = self._now(), 0
        if count >= who[1]:
            headers = {"Retry-After": str(int(left_s) + 1)}
            raise HTTPException(429, "too many wrong tokens; wait a minute", headers)
        self._failures[who] = since_s, count + 1
        self._failures.move_to_end(who)
        while len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)
        say_sometimes(f"a wrong token from {address}")
        raise HTTPException(401, "the token is wrong", {"WWW-Authenticate": "Bearer"})


class Guarding(NamedTuple):
    """What a gate asks, and tells."""

    sessions: Sessions
    tokens: Tokens
    counters: ServerCounters


def _digest(token: str) -> bytes:
    # All of one length, so that the time of a comparison does not tell that of the token.
    return hashlib.sha256(token.encode(errors="replace")).digest()


def cookie_name(settings: Settings) -> str:
    """Return the name of the session's cookie; under TLS one that no other host can set."""
    return "__Host-holdfast" if settings.is_tls else f"holdfast-{settings.port}"


def find_session(request: Request, settings: Settings, sessions: Sessions) -> Session | None:
    """Return the session of a browser, if it has one."""
    shown = request.cookies.get(cookie_name(settings), "")
    return sessions.find(shown) if shown else None


def check_same_origin(request: Request) -> None:
    """Refuse what another site made a browser send."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_told = site is not None or origin is not None
    is_ours = site in (None, "same-origin") and (origin is None or _is_origin_ours(origin, request))
    if not (is_told and is_ours):
        raise HTTPException(403, "this was not sent by a page of this server")


def _is_origin_ours(origin: str, request: Request) -> bool:
    # Only names and ports: a proxy in front of us may speak TLS where we do not.
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == request.headers.get("host", "").lower()


def address_of(request: Request) -> str:
    """Return who calls; of IPv6 the network, as one host has a whole one to itself."""
    host = request.client.host if request.client is not None else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:80]
    if address.version == 6:
        return str(ipaddress.ip_network(f"{address}/64", strict=False))
    return str(address)


def _ask_to_sign_in(request: Request) -> ASGIApp:
    if is_json_wanted(request) or "text/html" not in request.headers.get("accept", ""):
        return refuse(request, 401, "this needs the token", {"WWW-Authenticate": "Bearer"})
    path: str = request.scope["path"]
    return RedirectResponse(f"/sign-in?next={quote(path, safe='/')}", 303)
