"""What a server shows, of a real store and through its real route."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from shownruns import TROUBLES, make_shipment, read_series, utc

from holdfast.incidents.values import RunView
from holdfast.serve.metrics import ServerCounters, ServerMetrics, Sources
from holdfast.serve.metrics.collector import Extent
from holdfast.serve.metrics.counters import BUCKETS_S
from holdfast.serve.metrics.watching import Shown
from holdfast.serve.store import Store
from holdfast.serve.web.live import Live
from holdfast.shipment import Shipment
from webparts import TOKEN, running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(str(tmp_path / "store.sqlite"))
    yield store
    store.close()


def _metrics(
    store: Store, *, shown: Shown | None = None, counters: ServerCounters | None = None
) -> ServerMetrics:
    return ServerMetrics(
        Sources(
            store=store,
            views=Live(store),
            counters=counters or ServerCounters(),
            limit_bytes=1000,
            messages=lambda: {"sent": 3, "failed": 1},
        ),
        Extent(shown=shown or Shown(), fresh_s=0.0),
    )


def _take(store: Store, *names: str, heard_at: datetime | None = None) -> None:
    store.take([make_shipment(name, at=utc()) for name in names], heard_at=heard_at)


def _renamed(shipment: Shipment, name: str) -> Shipment:
    run = msgspec.structs.replace(shipment.run, key=f"{name}-key", name=name)
    return msgspec.structs.replace(shipment, run=run)


def test_runs_are_shown_as_they_are(store: Store) -> None:
    """Each trouble has its own state, and who is slow stands out."""
    _take(store, *TROUBLES)
    shown = read_series(list(_metrics(store).collect()))
    for name, state in {
        "well": "training",
        "slow": "slow",
        "hung": "hung",
        "short": "degraded",
        "failed": "failed",
        "done": "ended",
    }.items():
        run = f"run=run-{name}-{f'{name:a<8}'[:8]}"
        assert shown[f"holdfast_run_state{{{run},state={state}}}"] == 1, name
    run = "run=run-slow-slowaaaa"
    assert shown[f"holdfast_worker_own_ratio{{{run},rank=1,host=gpu-1}}"] == pytest.approx(4.0)
    assert shown[f"holdfast_step_seconds{{{run}}}"] == pytest.approx(0.5)
    assert shown[f"holdfast_step{{{run}}}"] == 9
    assert shown[f"holdfast_incidents_unattended{{{run},kind=slow}}"] == 1
    run = "run=run-short-shortaaa"
    assert shown[f"holdfast_deaths_total{{{run}}}"] == 1
    assert shown[f"holdfast_workers{{{run},state=dead}}"] == 1
    assert f"holdfast_worker_own_ratio{{{run},rank=3,host=gpu-1}}" not in shown


def test_what_is_only_counted_is_counted_once(store: Store) -> None:
    """Whenever it arrives, in parts and twice."""
    whole = make_shipment("short", at=utc())
    first = msgspec.structs.replace(whole, events=whole.events[:3])
    metrics, deaths = _metrics(store), []
    for shipment in (first, first, whole, whole):
        store.take([shipment])
        deaths.append(read_series(list(metrics.collect()))["holdfast_deaths_total{run=run-short-shortaaa}"])
    assert deaths == [0, 0, 1, 1]


def test_what_is_not_heard_of_any_more(store: Store) -> None:
    """Ended runs disappear, silent ones keep what an alert needs, and those of yesterday are gone."""
    _take(store, "well", "done", "slow", heard_at=utc(minutes=6))
    _take(store, "short", heard_at=utc(minutes=60 * 25))
    _take(store, "hung")
    metrics = _metrics(store)
    for _ in range(2):  # Also when it is known by then what is over.
        shown = read_series(list(metrics.collect()))
        runs = {name.split("run=")[1].split(",")[0].strip("}") for name in shown if "{run=" in name}
        assert runs == {"run-well-wellaaaa", "run-slow-slowaaaa", "run-hung-hungaaaa"}
        assert "holdfast_step_seconds{run=run-well-wellaaaa}" not in shown
        assert "holdfast_step_seconds{run=run-hung-hungaaaa}" in shown
        heard_s = shown["holdfast_run_heard_timestamp_seconds{run=run-well-wellaaaa}"]
        assert heard_s == pytest.approx(utc(minutes=6).timestamp(), abs=60)
        assert shown["holdfast_server_runs_live{}"] == 1
        assert shown["holdfast_server_runs_silent{}"] == 2
    _take(store, "done")  # It was started again.
    assert "holdfast_run_heard_timestamp_seconds{run=run-done-doneaaaa}" in read_series(
        list(metrics.collect())
    )


def test_many_runs_are_bounded(store: Store) -> None:
    """Those that started last are shown, the same ones whoever was heard of last; the rest is counted."""
    started = [datetime(2026, 11, 17, 10, minute, tzinfo=UTC) for minute in range(8)]
    shipments = [_renamed(make_shipment("well", at=at), f"r{number}") for number, at in enumerate(started)]
    metrics = _metrics(store, shown=Shown(most_runs=3, most_silent=2))
    for order in (shipments, shipments[::-1]):
        for shipment in order:
            store.take([shipment])
        shown = read_series(list(metrics.collect()))
        assert {name for name in shown if name.startswith("holdfast_step{")} == {
            f"holdfast_step{{run=r{number}-r{number}-key}}" for number in (5, 6, 7)
        }
        assert shown["holdfast_server_runs_live{}"] == 8
        assert shown["holdfast_server_runs_omitted{}"] == 5


def test_the_server_shows_itself(store: Store) -> None:
    """What it took, what it refused, how long that lasted, and how much there is."""
    counters = ServerCounters()
    counters.add("shipments", 2)
    counters.add("events", 40)
    counters.add("refused")
    counters.set_waiting(7)
    for lasted_s in (0.0005, 0.002, 0.002, 99.0):
        counters.observe_take(lasted_s)
    _take(store, "well")
    shown = read_series(list(_metrics(store, counters=counters).collect()))
    assert shown["holdfast_server_shipments_total{}"] == 2
    assert shown["holdfast_server_events_total{}"] == 40
    assert shown["holdfast_server_refused_lines_total{}"] == 1
    assert shown["holdfast_server_rejected_shipments_total{}"] == 0
    assert shown["holdfast_server_waiting_shipments{}"] == 7
    assert shown["holdfast_server_take_seconds_bucket{le=0.001}"] == 1
    assert shown["holdfast_server_take_seconds_bucket{le=0.0025}"] == 3
    assert shown[f"holdfast_server_take_seconds_bucket{{le={BUCKETS_S[-1]}}}"] == 3
    assert shown["holdfast_server_take_seconds_bucket{le=+Inf}"] == 4
    assert shown["holdfast_server_take_seconds_count{}"] == 4
    assert shown["holdfast_server_take_seconds_sum{}"] == pytest.approx(99.0045)
    assert shown["holdfast_server_store_limit_bytes{}"] == 1000
    assert shown["holdfast_server_store_size_bytes{}"] > 0
    assert shown["holdfast_server_store_runs{}"] == 1
    assert shown["holdfast_server_messages_total{outcome=sent}"] == 3


def test_the_store_is_not_asked_more_often_than_now_and_then(store: Store) -> None:
    """Many who scrape cost no more than one; a clock that was set back does not stop it."""
    now_s = [1000.0]
    asked: list[str] = []

    class Counted(Live):
        def view(self, key: str) -> RunView | None:
            asked.append(key)
            return super().view(key)

    _take(store, "well")
    now_s[0] = utc().timestamp()
    sources = Sources(store=store, views=Counted(store), counters=ServerCounters(), clock=lambda: now_s[0])
    metrics = ServerMetrics(sources, Extent(fresh_s=2.0))
    for passed_s in (0.0, 1.0, 0.9, 0.2, -500.0, 0.0):
        now_s[0] += passed_s
        metrics.collect()
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", False),
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8", False),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            True,
        ),
    ],
)
def test_the_route_speaks_what_is_asked_for(store: Store, accept: str, content_type: str, end: bool) -> None:
    """Text for old scrapers, OpenMetrics for new ones."""
    _take(store, "slow")
    with running(store) as server, server.client(token=TOKEN) as client:
        answer = client.get("/metrics", headers={"Accept": accept})
        posted = client.post("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(content_type)
    assert answer.text.endswith("# EOF\n") == end
    assert 'holdfast_run_state{run="run-slow-slowaaaa",state="slow"} 1.0' in answer.text
    assert "process_resident_memory_bytes" in answer.text
    assert posted.status_code == 405
