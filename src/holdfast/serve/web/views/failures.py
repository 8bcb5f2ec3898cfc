"""Pages for what does not work: each says what it is, and what to do."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from holdfast.serve.web.forms import safe_next
from holdfast.serve.web.views.page import answer_page

RETRY_S = 5
_TITLES = {
    400: "This cannot be understood",
    401: "This needs the token",
    403: "This is not allowed",
    404: "There is nothing here",
    405: "This cannot be done here",
    409: "This cannot be done now",
    429: "Too many tries",
    503: "The store cannot be used now",
}
_ADVICE = {
    401: ["Sign in, and try again."],
    403: ["Go back, load the page again, and try once more."],
    404: [
        "The run may have been removed because it was old, or the address has a slip in it.",
        "A run is in the list a few seconds after its start; search looks at names, hosts and commands.",
    ],
    503: [
        "Runs go on without it: their guards keep what they have to say, and send it when the store is back.",
        f"This page tries again every {RETRY_S} s.",
    ],
}


def is_page_wanted(request: Request) -> bool:
    """Whether a person looks at the answer: a browser asks for a page of ours, not a script for a part."""
    path: str = request.scope["path"]
    is_page = not path.startswith("/api/") and "/part/" not in path
    return is_page and "text/html" in request.headers.get("accept", "")


def error_page(request: Request, code: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """Return a page that says what is wrong, and what to do."""
    if request.scope["path"] == "/sign-in":
        response = sign_in_page(request, error=words, code=code)
    else:
        lines = [words[:1].upper() + words[1:] + ("" if words.endswith(".") else "."), *_ADVICE.get(code, [])]
        values = {
            "code": code,
            "title": _TITLES.get(code, "Something went wrong"),
            "lines": lines,
            "retry_s": RETRY_S if code == 503 else 0,
        }
        response = answer_page("error.html", values, request, code=code)
    response.headers.update(headers or {})
    return response


def sign_in_page(request: Request, *, error: str = "", code: int = 200) -> Response:
    """Return the page that asks for the token."""
    values = {"error": error, "next": safe_next(request.query_params.get("next", "/"))}
    return answer_page("sign-in.html", values, request, code=code)
