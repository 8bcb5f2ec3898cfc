"""``/api/v1/runs…``: what the store and the stories hold, as JSON; every answer has a bound."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.serve.store import RunRow
from holdfast.serve.web.context import Context
from holdfast.serve.web.intake import is_good_key
from holdfast.serve.web.trouble import spare

_MOST_RUNS = 500
_MOST_POINTS = 5000
_MOST_EVENTS = 5000
_MOST_EVENT_BYTES = 8 << 20


def routes(context: Context) -> list[Route]:
    """Return the routes that read."""
    api = _Api(context)
    run = "/api/v1/runs/{key}"
    return [
        Route("/api/v1/runs", api.runs),
        Route(run, api.run),
        Route(f"{run}/pace", api.pace),
        Route(f"{run}/ranks", api.ranks),
        Route(f"{run}/events", api.events),
        Route(f"{run}/orders", api.orders, methods=["GET"]),
    ]


def find_row(context: Context, request: Request) -> RunRow:
    """Return the run that an address names; blocks."""
    key = request.path_params["key"]
    row = context.store.run(key) if is_good_key(key) else None
    if row is None:
        raise HTTPException(404, f"no run {key[:200]!r}")
    return row


def answer(value: Any, code: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), code, media_type="application/json")


class _Api:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store

    def runs(self, request: Request) -> Response:
        text = request.query_params.get("text", "")
        if len(text) > 200 or not text.isprintable():
            raise HTTPException(400, "text is too long, or not printable")
        rows = self._store.runs(
            text=text, limit=read_int(request, "limit", 100, _MOST_RUNS), before=read_time(request, "before")
        )
        found = [(row, spare(row.key, self._context.live.glance_at, row)) for row in rows]
        return answer({"runs": [{"run": row, "now": glance} for row, glance in found if glance is not None]})

    def run(self, request: Request) -> Response:
        row = find_row(self._context, request)
        found = self._context.live.view_and_row(row.key)
        if found is None:
            raise HTTPException(404, f"no run {row.key!r}")
        return answer({"run": found[1], "view": found[0]})

    def pace(self, request: Request) -> Response:
        row = find_row(self._context, request)
        points = read_int(request, "points", 600, _MOST_POINTS)
        return answer({"pace": self._store.pace(row.key, points=points, since=read_time(request, "since"))})

    def ranks(self, request: Request) -> Response:
        return answer({"ranks": self._store.ranks(find_row(self._context, request).key)})

    def events(self, request: Request) -> Response:
        row = find_row(self._context, request)
        after = read_int(request, "after", 0, 2**62, least=0)
        limit = read_int(request, "limit", 1000, _MOST_EVENTS)
        kept = self._store.records(row.key, after=after, limit=limit, most_bytes=_MOST_EVENT_BYTES)
        return answer({"events": kept, "next": kept[-1].number if kept else after})

    def orders(self, request: Request) -> Response:
        row = find_row(self._context, request)
        told = self._store.all_orders(row.key)
        return answer({"orders": [{"order": order, "outcome": outcome} for order, outcome in told]})


def read_int(request: Request, name: str, default: int, most: int, *, least: int = 1) -> int:
    """Return a number of the query, within its bounds."""
    words = request.query_params.get(name)
    if words is None:
        return default
    if not (words.isascii() and words.isdigit() and len(words) <= 19 and least <= int(words) <= most):
        raise HTTPException(400, f"{name} is {words[:40]!r}, expected a whole number from {least} to {most}")
    return int(words)


def read_time(request: Request, name: str) -> str | None:
    """Return a time of the query."""
    words = request.query_params.get(name)
    if words is None:
        return None
    try:
        datetime.fromisoformat(words[:40])
    except ValueError:
        raise HTTPException(400, f"{name} is {words[:40]!r}, expected a time as in ISO 8601") from None
    return words[:40]
