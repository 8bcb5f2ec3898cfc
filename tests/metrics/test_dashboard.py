"""The dashboard and the alerts, against a real Prometheus that scrapes real endpoints."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from scraped import DEPLOY, PATIENCE_S, Prometheus, free_port, need, prometheus, served
from shownruns import TROUBLES, make_seen, make_shipment, utc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.metrics.meter import Meter
from holdfast.metrics.names import DEFINITIONS
from holdfast.metrics.sheet import Sheet
from holdfast.serve.metrics import ServerCounters, ServerMetrics, Sources, metrics_route
from holdfast.serve.metrics.collector import Extent
from holdfast.serve.metrics.watching import Shown
from holdfast.serve.store import Store
from holdfast.serve.web.live import Live
from holdfast.shipment import Shipment

DASHBOARD = msgspec.json.decode((DEPLOY / "grafana" / "holdfast.json").read_bytes())
VARIABLES = {"$job": ".+", "$run": ".+", "$__rate_interval": "30s", "$__range": "30s"}


def _panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def _expressions() -> list[str]:
    """All that the dashboard asks for, as Grafana would ask it."""
    return _fill([target["expr"] for panel in _panels() for target in panel["targets"]])


def _fill(found: list[str]) -> list[str]:
    for name, value in VARIABLES.items():
        found = [expr.replace(name, value) for expr in found]
    return found


class Scene(msgspec.Struct, frozen=True):
    """What is scraped, and by whom."""

    prometheus: Prometheus
    store: Store
    live: Live
    counters: ServerCounters


class _Guard(Collector):
    """What a guard shows that cannot keep up."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._lost = itertools.count(step=10)

    def collect(self) -> list[Metric]:
        sheet = Sheet()
        seen = make_seen(4, is_whole=False, lost_records={"gpu-0": next(self._lost)})
        self._meter.describe([seen], sheet)
        return sheet.metrics()


def _old(shipment: Shipment, name: str) -> Shipment:
    """Another run like it, that started long ago."""
    run = msgspec.structs.replace(
        shipment.run, key=f"{name}-key-0", name=name, started_at="2026-01-01T00:00:00+00:00"
    )
    return msgspec.structs.replace(shipment, run=run)


def _make_metrics(store: Store, live: Live, counters: ServerCounters) -> ServerMetrics:
    """Of runs in all kinds of trouble, on a server that is in trouble too."""
    well = make_shipment("well", at=utc())
    store.take([make_shipment(name, at=utc()) for name in TROUBLES])
    store.take([_old(well, "one-too-many")])
    store.take([_old(well, "quiet")], heard_at=utc(minutes=30))
    failed = itertools.count()
    return ServerMetrics(
        Sources(
            store=store,
            views=live,
            counters=counters,
            limit_bytes=1000,
            messages=lambda: {"sent": 1, "failed": next(failed)},
        ),
        Extent(shown=Shown(most_runs=len(TROUBLES)), fresh_s=0.0),
    )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A Prometheus that scrapes a server, a guard, and a server that is not there."""
    folder = tmp_path_factory.mktemp("prometheus")
    store, counters = Store.open(str(folder / "store.sqlite")), ServerCounters()
    live = Live(store)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Guard())

    def show_guard(request: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain")

    routes = [metrics_route(_make_metrics(store, live, counters)), Route("/guard", show_guard)]
    try:
        with served(Starlette(routes=routes)) as port:
            jobs = {
                "holdfast-server": ("/metrics", [port, free_port()]),
                "holdfast-guard": ("/guard", [port]),
            }
            with prometheus(folder, jobs) as running:
                yield Scene(running, store, live, counters)
    finally:
        store.close()


def _wait_for_all(scene: Scene, expressions: list[str]) -> None:
    """Ask until every expression has been answered with something; say which never was."""
    running, counters = scene.prometheus, scene.counters
    left, deadline_s = list(expressions), time.monotonic() + PATIENCE_S
    while left:
        for what in ("shipments", "events", "duplicates", "refused", "rejected"):
            counters.add(what)
        counters.observe_take(0.01)
        left = [expr for expr in left if not running.query(expr)]
        assert time.monotonic() < deadline_s, f"no data for {left}"
        time.sleep(0.2)


@pytest.mark.processes
def test_every_query_of_the_dashboard_finds_data(scene: Scene) -> None:
    """A typing error in a name or a label would be an empty panel."""
    _wait_for_all(scene, _expressions())


@pytest.mark.processes
def test_an_incident_is_marked_on_the_dashboard(scene: Scene) -> None:
    """When its count rises, which it does from zero: a run is shown before anything goes wrong."""
    _wait_for_all(scene, ['holdfast_incidents_total{run="run-well-wellaaaa",kind="slow"} == 0'])
    slow, well = make_shipment("slow", at=utc()), make_shipment("well", at=utc())
    scene.store.take([msgspec.structs.replace(well, events=slow.events[-2:])])
    scene.live.change([well.run.key])
    _wait_for_all(scene, _fill([each["expr"] for each in DASHBOARD["annotations"]["list"]]))


@pytest.mark.processes
def test_every_alert_can_fire(scene: Scene) -> None:
    """Each expression finds the trouble that it is about, and all rules are evaluated without error."""
    rules = [rule for group in scene.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == 12
    _wait_for_all(scene, [rule["query"] for rule in rules])
    rules = [rule for group in scene.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] == "err"} == {}
    for rule in rules:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


@pytest.mark.processes
def test_variables_find_jobs_and_runs(scene: Scene) -> None:
    """What Grafana's ``label_values`` asks for is there."""
    _wait_for_all(scene, ["holdfast_run_info"])
    for variable in DASHBOARD["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
        assert match is not None
        assert all(match.group(2) in each["metric"] for each in scene.prometheus.query(match.group(1)))


@pytest.mark.processes
def test_the_alerts_do_what_they_say() -> None:
    """By Prometheus's own tests of rules, which are shipped beside them."""
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        done = subprocess.run(
            [need("promtool"), *arguments],
            cwd=DEPLOY / "prometheus",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.processes
def test_the_example_and_the_text_pass_prometheus_own_checks(tmp_path: Path) -> None:
    """The linter knows the conventions for names better than we do."""
    checks = [need("promtool"), "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")]
    done = subprocess.run(checks, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(str(tmp_path / "store.sqlite"))
    text, _ = _make_metrics(store, Live(store), ServerCounters()).render("")
    store.close()
    linted = subprocess.run(
        [need("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=120, check=False
    )
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, b"", b"")


def test_the_dashboard_is_whole() -> None:
    """Every panel says what it shows, in which unit, and asks the chosen data source."""
    panels = _panels()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] == "table" or panel["fieldConfig"]["defaults"]["unit"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource", "job", "run"]


def test_no_panel_lies_on_another() -> None:
    """Each has its own place in the grid of 24 columns."""
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]


def test_every_metric_that_is_asked_for_exists() -> None:
    """And of those that exist, all but a few for joins and for guards are shown somewhere."""
    text = " ".join(_expressions()) + (DEPLOY / "prometheus" / "alerts.yml").read_text()
    asked = {name.removesuffix("_bucket") for name in re.findall(r"holdfast_\w+", text)}
    assert asked <= set(DEFINITIONS)
    assert set(DEFINITIONS) - asked == {
        "holdfast_run_info",
        "holdfast_run_attempt",
        "holdfast_run_nodes",
        "holdfast_hosts_omitted",
        "holdfast_paid_gpu_seconds_total",
        "holdfast_server_store_events",
        "holdfast_server_store_runs",
    }
