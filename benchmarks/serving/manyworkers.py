"""One job with 10,000 workers: how long its page takes in a browser, how large it is, how many series."""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

import common
from holdfast.findings import ChangePoint, Suspect
from holdfast.guard.eventlog import encode
from holdfast.serve.store import Store
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary
from holdfast.values import (
    AnyEvent,
    AttemptStarted,
    JobSlowed,
    RunStarted,
    Stamp,
    StepSeen,
    SuspectsNamed,
)
from serving.server import Served

NODES, PER_NODE = 1250, 8
SECONDS = 120
KEY = "large"
_BROWSER = "/usr/bin/chromium"
_LOADS = 5


def measure(options: argparse.Namespace) -> common.Part:
    """Fill a store, then look at it."""
    with tempfile.TemporaryDirectory() as name:
        store = f"{name}/store.sqlite"
        began = datetime.now(UTC) - timedelta(seconds=SECONDS)
        _fill(store, began)
        server = Served(Path(name), store, is_open=True)
        try:
            row = {"workers": NODES * PER_NODE, **_weigh(server), **_load(server)}
        finally:
            server.close()
    notes = ["in Chromium: from the request to the load event, median of five"]
    return common.Part([row], notes, is_good=row["loaded s"] < 1.0)


def _fill(url: str, began: datetime) -> None:
    run = Run(key=KEY, name=KEY, run_id=KEY, host="host0", started_at=began.isoformat(), command=["train.py"])
    store = Store.open(url)
    try:
        for node in range(NODES):
            ranks = list(range(node * PER_NODE, (node + 1) * PER_NODE))
            events: list[AnyEvent] = [RunStarted(run_id=KEY, argv=["train.py"], pid=1)] if node == 0 else []
            events.append(AttemptStarted(world_size=NODES * PER_NODE, nodes=NODES, ranks=ranks, pids=ranks))
            events += [StepSeen(rank=rank, step=0) for rank in ranks]
            events += _trouble() if node == 0 else []
            lines = [_line(event, node, number, began) for number, event in enumerate(events)]
            rows = [_row(node, ranks, began, second) for second in range(0, SECONDS, 10)]
            store.take([Shipment(run=run, node=node, events=lines, summaries=rows)])
    finally:
        store.close()


def _trouble() -> list[AnyEvent]:
    change = ChangePoint(
        step=500,
        detected_step=505,
        before_s=0.1,
        after_s=0.2,
        direction="slow",
        is_slow=True,
        confidence=0.99,
    )
    suspect = Suspect(ranks=[4711], hosts=["host588"], cause="compute", slowdown=2.0, confidence=0.97)
    return [JobSlowed(change=change), SuspectsNamed(since_step=500, suspects=[suspect])]


def _line(event: AnyEvent, node: int, number: int, began: datetime) -> msgspec.Raw:
    stamp = Stamp(
        schema=1,
        event_id=f"{node}-{number}",
        at=(began + timedelta(seconds=number / 10)).isoformat(),
        host=f"host{node}",
        node=node,
        attempt=0,
    )
    return msgspec.Raw(encode(stamp, event).strip())


def _row(node: int, ranks: list[int], began: datetime, second: int) -> Summary:
    return Summary(
        at=(began + timedelta(seconds=second)).isoformat(),
        node=node,
        attempt=0,
        steps={str(rank): 10 * second for rank in ranks},
        duration_s={str(rank): 0.1 + 0.001 * (rank % 7) for rank in ranks},
        own_s={str(rank): (0.18 if rank == 4711 else 0.09) + 0.0005 * (rank % 5) for rank in ranks},
    )


def _weigh(server: Served) -> dict[str, Any]:
    """Return sizes, and what the server alone needs, the first time and later."""
    first_s = server.get(f"/runs/{KEY}")[1]
    later_s = [server.get(f"/runs/{KEY}")[1] for _ in range(_LOADS)]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"/runs/{KEY}")
    page = connection.getresponse().read()
    connection.request("GET", "/metrics")
    series = [line for line in connection.getresponse().read().splitlines() if not line.startswith(b"#")]
    connection.close()
    return {
        "first s": first_s,
        "later s": statistics.median(later_s),
        "page KB": len(page) / 1000,
        "series": sum(b'run="large' in line for line in series),
    }


def _load(server: Served) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_BROWSER, args=["--no-sandbox"])
        for _ in range(_LOADS):
            page = browser.new_page()
            page.goto(f"{server.url}/runs/{KEY}", wait_until="load")
            entry = json.loads(page.evaluate("JSON.stringify(performance.getEntriesByType('navigation')[0])"))
            times.append(entry["loadEventEnd"] / 1000)
            page.close()
        browser.close()
    return {"loaded s": statistics.median(times)}
