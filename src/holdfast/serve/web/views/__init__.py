"""What a person sees: pages, and the parts of them that the script fetches when something has changed."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.serve.web.context import Context
from holdfast.serve.web.views.allincidents import incidents_values
from holdfast.serve.web.views.failures import sign_in_page
from holdfast.serve.web.views.looks import shape
from holdfast.serve.web.views.page import STATIC, answer_page, now_utc, read_static
from holdfast.serve.web.views.reliability import reliability_values
from holdfast.serve.web.views.run import PARTS, RunPages
from holdfast.serve.web.views.runs import list_values

_MOST_TEXT = 200


def routes(context: Context) -> list[BaseRoute]:
    """Return the routes of all pages; they only read."""
    views = _Views(context)
    return [
        Route("/", views.runs),
        Route("/part/runs", views.runs_part),
        Route("/runs/{key}", views.run),
        Route("/runs/{key}/part/{part}", views.run_part),
        Route("/incidents", views.incidents),
        Route("/part/all-incidents", views.incidents_part),
        Route("/reliability", views.reliability),
        Route("/sign-in", sign_in, methods=["GET"]),
        Route("/static/{name}", static),
    ]


class _Views:
    """Endpoints; plain functions, which Starlette runs in threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pages = RunPages(context)

    def runs(self, request: Request) -> Response:
        return answer_page("runs.html", list_values(self._context, _text(request), now_utc()), request)

    def runs_part(self, request: Request) -> Response:
        return answer_page("part-runs.html", list_values(self._context, _text(request), now_utc()), request)

    def run(self, request: Request) -> Response:
        return answer_page("run.html", self._pages.values(request, PARTS), request)

    def run_part(self, request: Request) -> Response:
        part = request.path_params["part"]
        if part not in PARTS:
            raise HTTPException(404, f"no part {part[:40]!r}")
        return answer_page(f"part-{part}.html", self._pages.values(request, [part]), request)

    def incidents(self, request: Request) -> Response:
        return answer_page("incidents.html", incidents_values(self._context, request, now_utc()), request)

    def incidents_part(self, request: Request) -> Response:
        values = incidents_values(self._context, request, now_utc())
        return answer_page("part-all-incidents.html", values, request)

    def reliability(self, request: Request) -> Response:
        values = reliability_values(self._context, now_utc()) | {"lemon_mark": shape("triangle")}
        return answer_page("reliability.html", values, request)


def sign_in(request: Request) -> Response:
    """Ask for the token."""
    return sign_in_page(request)


def static(request: Request) -> Response:
    """Return a file that pages load; its address changes with it, so that it may be kept for long."""
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404, f"no file {name[:40]!r}")
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(read_static(name), headers=headers, media_type=STATIC[name])


def _text(request: Request) -> str:
    text = request.query_params.get("text", "").strip()[:_MOST_TEXT]
    return text if text.isprintable() else ""
