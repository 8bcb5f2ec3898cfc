"""The JSON interface as an OpenAPI 3.1 document, made from the very values that are sent."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.incidents.values import RunView
from holdfast.serve.store import Kept, PacePoint, RankPace, RunRow
from holdfast.serve.web.live import Glance
from holdfast.serve.web.orders import Wish
from holdfast.shipment import Order, Receipt, Shipment

_REF = "#/components/schemas/{name}"
_TYPES = (RunRow, RunView, Glance, Kept, PacePoint, RankPace, Order, Wish, Shipment, Receipt)
_JSON = "application/json"
_RUN = "/api/v1/runs/{key}"


def openapi_route() -> Route:
    """Return the route that shows it."""
    document = msgspec.json.encode(describe())

    def show(request: Request) -> Response:
        return Response(document, media_type=_JSON)

    return Route("/api/v1/openapi.json", show)


def describe() -> dict[str, Any]:
    """Return the document."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    schemas["Error"] = _object({"error": {"type": "string"}})
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": "1", "description": "What a server knows of its runs."},
        "paths": _reading() | _changing(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _reading() -> dict[str, Any]:
    runs = _object({"runs": _list(_object({"run": _ref("RunRow"), "now": _ref("Glance")}))})
    orders = _object({"orders": _list(_object({"order": _ref("Order"), "outcome": {"type": "string"}}))})
    text = _query("text", {"type": "string", "maxLength": 200})
    return {
        "/api/v1/runs": _get(
            "Runs, whom the server heard last first.", runs, [text, _limit(500), _time("before")]
        ),
        _RUN: _get(
            "One run: workers, incidents, bill.", _object({"run": _ref("RunRow"), "view": _ref("RunView")})
        ),
        f"{_RUN}/pace": _get(
            "Step time over time.",
            _object({"pace": _list(_ref("PacePoint"))}),
            [_whole("points", 1, 5000), _time("since")],
        ),
        f"{_RUN}/ranks": _get("Each rank as it was seen last.", _object({"ranks": _list(_ref("RankPace"))})),
        f"{_RUN}/events": _get(
            "The event log of all nodes; next is the after of the next page.",
            _object({"events": _list(_ref("Kept")), "next": {"type": "integer"}}),
            [_whole("after", 0, 2**62), _limit(5000)],
        ),
        f"{_RUN}/orders": _get("Orders with their outcome.", orders),
    }


def _changing() -> dict[str, Any]:
    orders = _reading()[f"{_RUN}/orders"]
    orders["post"] = _post("A new order.", "Wish", 201, "Order") | {"parameters": [_key()]}
    return {
        f"{_RUN}/orders": orders,
        "/api/v1/shipments": {"post": _post("What guards send.", "Shipment", 200, "Receipt")},
    }


def _get(summary: str, schema: dict[str, Any], query: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    is_of_run = "runs" not in schema["properties"]
    parameters = [*([_key()] if is_of_run else []), *(query or [])]
    return {"get": {"summary": summary, "parameters": parameters, "responses": _answers(200, schema)}}


def _post(summary: str, body: str, code: int, answer: str) -> dict[str, Any]:
    content = {_JSON: {"schema": _ref(body)}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": _answers(code, _ref(answer)),
    }


def _answers(code: int, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that is hoped for, and all others, which are alike."""
    good = {"description": "as asked", "content": {_JSON: {"schema": schema}}}
    other = {"description": "an error, in one line", "content": {_JSON: {"schema": _ref("Error")}}}
    return {str(code): good, "4XX": other, "503": other}


def _key() -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 200}
    return {"name": "key", "in": "path", "required": True, "schema": schema}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _whole(name: str, least: int, most: int) -> dict[str, Any]:
    return _query(name, {"type": "integer", "minimum": least, "maximum": most})


def _limit(most: int) -> dict[str, Any]:
    return _whole("limit", 1, most)


def _time(name: str) -> dict[str, Any]:
    return _query(name, {"type": "string", "format": "date-time"})


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}


def _list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}
