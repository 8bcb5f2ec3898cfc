"""The JSON interface under schemathesis: whatever is sent to it gets an answer that its description has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.routing import Route

from attackparts import BEGIN, TOKEN, Attacked, make_shipment, ship
from helpers import EVENTS
from holdfast.serve.store import Kept, Store
from holdfast.serve.web.app import make_app
from holdfast.serve.web.openapi import describe
from holdfast.serve.web.settings import Settings
from holdfast.telemetry import Summary

pytestmark = pytest.mark.processes

_CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"


class _Events(msgspec.Struct):
    events: list[Kept]


@pytest.fixture(scope="module")
def known(server: Attacked) -> Iterator[httpx.Client]:
    """Somebody with the token, who has sent a run in which everything happens that can."""
    with server.client() as client:
        shipment = make_shipment("k", *BEGIN, *EVENTS)
        row = Summary(
            at="2026-11-17T10:30:00+00:00", node=0, attempt=0, steps={"0": 5, "1": 5}, duration_s={"0": 0.5}
        )
        answer = ship(client, msgspec.structs.replace(shipment, summaries=[row])).json()
        assert (answer["taken"], answer["refused"]) == (len(shipment.events) + 1, [])
        yield client


def _fuzz(server: Attacked, document: bytes, *flags: str) -> subprocess.CompletedProcess[str]:
    """Have schemathesis send whatever it thinks of."""
    described = json.loads(document)
    for path in described["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "key":  # Made-up keys would only ever meet runs that are not there.
                    parameter["schema"]["enum"] = ["k", "nobody"]
    file = server.folder / "openapi.json"
    file.write_text(json.dumps(described))
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(file), "--url", server.url]
    fixed = ["--seed", "1", "--generation-database", "none", "--checks", _CHECKS, "--no-color"]
    return subprocess.run(
        [*command, *fixed, *flags],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=server.folder,
    )


def test_with_the_token_every_answer_is_as_described(server: Attacked, known: httpx.Client) -> None:
    """No request is answered with a bug, or with anything that the description does not have."""
    pytest.importorskip("schemathesis")
    document = known.get("/api/v1/openapi.json").content
    shown = ["--header", f"Authorization: Bearer {TOKEN}", "--max-examples", "5"]
    done = _fuzz(server, document, *shown, "--phases", "coverage,fuzzing")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "8 passed" in done.stdout
    assert server.is_well(), server.said()


def test_without_the_token_every_answer_is_a_refusal(server: Attacked, known: httpx.Client) -> None:
    """Nothing is read or changed, whatever is sent."""
    pytest.importorskip("schemathesis")
    before = known.get("/api/v1/runs").json()["runs"], known.get("/api/v1/runs/k/orders").json()
    done = _fuzz(
        server, known.get("/api/v1/openapi.json").content, "--max-examples", "5", "--phases", "fuzzing"
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "8 operations returned only 401/403" in done.stdout
    assert (known.get("/api/v1/runs").json()["runs"], known.get("/api/v1/runs/k/orders").json()) == before


def test_the_description_is_of_what_is_sent(server: Attacked, known: httpx.Client) -> None:
    """Events come as they are described, one by one, and the description is only for who may read."""
    answer = known.get("/api/v1/runs/k/events")
    events = msgspec.json.decode(answer.content, type=_Events).events
    assert [kept.record.event for kept in events] == [*BEGIN, *EVENTS]
    assert httpx.get(f"{server.url}/api/v1/openapi.json").status_code == 401
    described = known.get("/api/v1/openapi.json").json()
    assert set(described["components"]["schemas"]) >= {"RunView", "Shipment", "Receipt", "Order", "Error"}


def test_every_route_of_the_interface_is_described(tmp_path: Path) -> None:
    """Besides the two that never end, and the description itself."""
    store = Store.open(str(tmp_path / "store.sqlite"))
    try:
        app = make_app(store, Settings(token=TOKEN))
    finally:
        store.close()
    paths = {route.path for route in app.routes if isinstance(route, Route)}
    left_out = {"/api/v1/live", "/api/v1/runs/{key}/live", "/api/v1/openapi.json"}
    assert set(describe()["paths"]) == {path for path in paths if path.startswith("/api/")} - left_out
