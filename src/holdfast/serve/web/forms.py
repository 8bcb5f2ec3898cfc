"""Forms of our own pages, and where a browser goes after one."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from holdfast.serve.web.body import read_body

MOST_FORM_BYTES = 16 << 10
_KIND = "application/x-www-form-urlencoded"


def is_form(request: Request) -> bool:
    """Whether the body is a form."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _KIND


async def read_form(request: Request, *, is_open: bool = False) -> dict[str, str]:
    """Return a form's fields; refuse it without the session's form token, unless it is open to everybody."""
    if not is_form(request):
        raise HTTPException(415, f"Content-Type is not {_KIND}")
    body = await read_body(request, most=MOST_FORM_BYTES)
    try:
        fields = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None
    if not is_open:
        check_form_token(request, fields.get("form_token", ""))
    return fields


def check_form_token(request: Request, shown: str) -> None:
    """Refuse a session's request that does not know what only our own pages know."""
    if request.state.has_token:
        return
    session = request.state.session
    if session is None or not hmac.compare_digest(shown.encode(), session.form_token.encode()):
        raise HTTPException(403, "the form is too old; load the page again")


def safe_next(words: str) -> str:
    """Return a path of this server, whatever was asked for."""
    is_path = words.startswith("/") and not words.startswith(("//", "/\\")) and words.isprintable()
    return words if is_path and len(words) <= 2048 and "\\" not in words else "/"
