"""What a caller is told when something does not work: one line, and never more than it should know."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from holdfast.errors import InputError, MissingError, StoreError

_LOG = logging.getLogger("holdfast.serve")
RETRY_S = 5
"""When to try again what the store could not take."""

P = ParamSpec("P")
T = TypeVar("T")


def is_json_wanted(request: Request) -> bool:
    """Whether the caller is a program."""
    path: str = request.scope["path"]
    return path.startswith("/api/")


def refuse(request: Request, code: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of one line, to a browser as a page that also says what to do."""
    from holdfast.serve.web.views.failures import error_page, is_page_wanted  # It knows us, too.

    if is_page_wanted(request):
        try:
            return error_page(request, code, words, headers)
        except Exception:  # Words without a page are better than none.
            _LOG.exception("the page of a refusal failed")
    if is_json_wanted(request):
        body = msgspec.json.encode({"error": words})
        return Response(body + b"\n", code, headers, media_type="application/json")
    return PlainTextResponse(f"{words}\n", code, headers)


def answer_refusal(request: Request, error: Exception) -> Response:
    """Answer what a route, or the router itself, refused."""
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing here", 405: "this cannot be done here"}
    is_routers = error.detail in ("Not Found", "Method Not Allowed")
    said = words.get(error.status_code, error.detail) if is_routers else error.detail
    return refuse(request, error.status_code, said, dict(error.headers or {}))


def answer_failure(request: Request, error: Exception) -> Response:
    """Answer what went wrong: a wrong question, a store that is away, or a bug, which is not told."""
    if isinstance(error, InputError) and not isinstance(error, MissingError):
        return refuse(request, 400, " ".join(str(error).split())[:300])
    if isinstance(error, StoreError):
        say_sometimes(str(error))
        return refuse(
            request, 503, "the store cannot be used now; try again later", {"Retry-After": str(RETRY_S)}
        )
    # Whoever calls chooses the path; it must not look like lines of ours.
    path = "".join(letter if letter.isprintable() else "?" for letter in request.scope["path"][:200])
    _LOG.error("%s %s failed", request.method, path, exc_info=error)
    return refuse(request, 500, "something went wrong on the server; its log says what")


_SAID_S: dict[str, float] = {}
_AGAIN_S = 60.0


def say_sometimes(words: str) -> None:
    """Log a line, but not for each of a thousand senders that meet the same trouble."""
    now_s = time.monotonic()
    if now_s - _SAID_S.get(words, float("-inf")) >= _AGAIN_S:
        if len(_SAID_S) > 1000:
            _SAID_S.clear()
        _SAID_S[words] = now_s
        _LOG.warning("%s", words)


def spare(key: str, make: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
    """Return what is made of one run of many; None where that fails: the others are to be seen all the same.

    The log says which run and what kind of error; not its words, which could hold what the run has sent.
    """
    try:
        return make(*args, **named)
    except StoreError:  # It fails for all of them.
        raise
    except Exception as error:
        say_sometimes(f"run {key!r} is left out where many are shown: {type(error).__name__}")
        return None


class Seldom(logging.Filter):
    """Lets uvicorn say the same only once in a while: whoever sends nonsense must not fill the log."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to say it."""
        if not record.name.startswith("uvicorn") or record.levelno >= logging.ERROR:
            return True
        # Not with what is put into it, which a caller may choose.
        now_s, words = time.monotonic(), str(record.msg)
        is_due = now_s - self._said_s.get(words, float("-inf")) >= _AGAIN_S
        if is_due:
            self._said_s[words] = now_s
        return is_due
