"""``GET /metrics``, as text or OpenMetrics, whichever the client asks for."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.serve.metrics.collector import ServerMetrics


def metrics_route(metrics: ServerMetrics) -> Route:
    """Return the route that shows them."""

    def show(request: Request) -> Response:  # Not async: it asks the store, so it belongs into a thread.
        # More than one header of the name is one list.
        accept = ",".join(request.headers.getlist("accept"))
        body, content_type = metrics.render(accept)
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return Route("/metrics", show, methods=["GET"])
