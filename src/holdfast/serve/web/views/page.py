"""Templates, and what every page holds; a template's values are escaped unless we made them ourselves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from typing import Any

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.incidents.words import phrase
from holdfast.serve.pageparts import printable
from holdfast.serve.web.views.looks import sprite
from holdfast.serve.web.views.words import clock, moment

PACKAGE = "holdfast.serve.web"
STATIC = {
    "holdfast.css": "text/css; charset=utf-8",
    "holdfast.js": "text/javascript; charset=utf-8",
    "holdfast.svg": "image/svg+xml",
}


@cache
def environment() -> jinja2.Environment:
    """Return the templates."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(PACKAGE, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.globals.update(sprite=sprite(), stamp=_stamp(), clock=clock, phrase=phrase)
    return found


@cache
def read_static(name: str) -> bytes:
    """Return a file of ours that pages load."""
    return resources.files(PACKAGE).joinpath("static", name).read_bytes()


def _stamp() -> str:
    """Return a word that changes with what pages load, so that no browser shows an old one."""
    return hashlib.sha256(b"".join(map(read_static, STATIC))).hexdigest()[:12]


def now_utc() -> datetime:
    """Return the time, by the clock that also says when a run was heard of."""
    return datetime.now(UTC)


def render(name: str, values: Mapping[str, Any], request: Request | None = None) -> str:
    """Return a template with its values, as text that every browser can show."""
    state = request.state if request is not None else None
    now = values.get("now") or now_utc()
    common = {
        "now_iso": now.isoformat(),
        "session": getattr(state, "session", None),
        "path": request.scope["path"] if request is not None else "/",
        "moment": partial(moment, now=now),
    }
    return printable(environment().get_template(name).render({**common, **values}))


def answer_page(name: str, values: Mapping[str, Any], request: Request, *, code: int = 200) -> Response:
    """Return a page, or a part of one."""
    return HTMLResponse(render(name, values, request), code)
