"""From a guard's shipment to a message in the room, through the whole server and its real store."""

from __future__ import annotations

from pathlib import Path

import httpx
from receivers import Receiver

from helpers import CHANGE, SUSPECT, wait_until
from holdfast.serve.store import Store
from holdfast.values import IncidentClosed, JobHung, JobSlowed, SuspectsNamed
from roomruns import Scribe, start
from webparts import TOKEN, running, ship

_STEP = {0: (0.5, 0.4), 1: (0.5, 0.4)}


def _ship(client: httpx.Client, scribe: Scribe) -> None:
    for shipment in scribe.shipments():
        answer = ship(client, shipment)
        assert answer.status_code == 200, answer.text


def test_an_incident_reaches_the_room_once(tmp_path: Path) -> None:
    """Also when the server is started again in the middle of it, and counted where Prometheus looks."""
    receiver = Receiver()
    store = Store.open(str(tmp_path / "store.sqlite"))
    scribe = start(Scribe("big-run"))
    scribe.tell(JobSlowed(change=CHANGE), s_ago=2000)  # Too long ago to be news.
    scribe.tell(IncidentClosed(since_step=7, lasted_s=9.0, lost_s=3.0, paid_s=0.0), s_ago=1900)
    try:
        with running(store, webhook_url=receiver.url) as server, server.client(token=TOKEN) as client:
            scribe.tell(JobSlowed(change=CHANGE), s_ago=20)
            _ship(client, scribe)
            wait_until(lambda: len(receiver.messages) == 1, "the first message")
            _ship(client, scribe.tell(SuspectsNamed(since_step=7, suspects=[SUSPECT]), s_ago=10))
            wait_until(lambda: len(receiver.messages) == 2, "the second message")
            metrics = client.get("/metrics").text
        with running(store, webhook_url=receiver.url) as server, server.client(token=TOKEN) as client:
            _ship(client, scribe.tell(IncidentClosed(since_step=7, lasted_s=9.0, lost_s=6.0, paid_s=0.0)))
            wait_until(lambda: len(receiver.messages) == 3, "the last message")
    finally:
        store.close()
        receiver.close()
    assert [text.split(": ")[1] for text in receiver.texts] == [
        "Slow job, opened",
        "Slow job, named",
        "Slow job, closed",
    ]
    assert f"/runs/{scribe.key}|big-run" in str(receiver.messages[0]["blocks"])
    assert "lost 6.0 s" in str(receiver.messages[2]["blocks"])
    assert 'holdfast_server_messages_total{outcome="failed"} 0.0' in metrics
    assert "secret" not in metrics


def _halt(scribe: Scribe) -> Scribe:
    """Tell of a run that made steps and then none."""
    start(scribe, ranks=2)
    scribe.pace(40, _STEP, s_ago=60)
    return scribe.tell(JobHung(lasted_s=30.0, limit_s=20.0, suspects=[]), s_ago=20)


def test_a_hang_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    """No event says so, only that steps are made again; also where the server was started in between."""
    receiver = Receiver()
    store = Store.open(str(tmp_path / "store.sqlite"))
    first, second = _halt(Scribe("first")), _halt(Scribe("second"))
    try:
        with running(store, webhook_url=receiver.url) as server, server.client(token=TOKEN) as client:
            _ship(client, first)
            _ship(client, second)
            wait_until(lambda: len(receiver.messages) == 2, "the first messages")
            _ship(client, first.pace(41, _STEP))
            wait_until(lambda: len(receiver.messages) == 3, "the end of the first hang")
        with running(store, webhook_url=receiver.url) as server, server.client(token=TOKEN) as client:
            _ship(client, second.pace(41, _STEP))
            wait_until(lambda: len(receiver.messages) == 4, "the end of the second hang")
    finally:
        store.close()
        receiver.close()
    told = [text.split(": ")[:2] for text in receiver.texts]
    assert told[2:] == [["first", "Job hangs, closed"], ["second", "Job hangs, closed"]]
