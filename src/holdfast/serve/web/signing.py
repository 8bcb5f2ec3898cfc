"""``/sign-in`` and ``/sign-out``: a browser shows the token once, and is known by a cookie from then on."""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.serve.web.context import Context
from holdfast.serve.web.forms import read_form, safe_next
from holdfast.serve.web.gate import Tokens, address_of, check_same_origin, cookie_name

_LOG = logging.getLogger("holdfast.serve")


class Signing:
    """Begins and ends sessions."""

    def __init__(self, context: Context, tokens: Tokens) -> None:
        self._context = context
        self._tokens = tokens

    def routes(self) -> list[Route]:
        """Return the routes; the page that asks for the token is a view."""
        return [
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def sign_in(self, request: Request) -> Response:
        """Begin a session for who has the token."""
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            check_same_origin(request)
        form = await read_form(request, is_open=True)
        self._tokens.check(form.get("token", "").strip(), address_of(request), is_typed=True)
        name = form.get("name", "").strip()
        if len(name) > 80 or not name.isprintable():
            raise HTTPException(400, "the name is too long, or not printable")
        self._end(request)
        session = self._context.sessions.begin(name)
        _LOG.info("signed in: %s, from %s", name or "somebody", address_of(request))
        response = RedirectResponse(safe_next(form.get("next", "/")), 303)
        settings = self._context.settings
        response.set_cookie(
            cookie_name(settings),
            session.session_id,
            path="/",
            secure=settings.is_tls or request.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        await read_form(request)
        self._end(request)
        response = RedirectResponse("/", 303)
        settings = self._context.settings
        response.delete_cookie(cookie_name(settings), path="/", secure=settings.is_tls, httponly=True)
        return response

    def _end(self, request: Request) -> None:
        if request.state.session is not None:
            self._context.sessions.end(request.state.session.session_id)
