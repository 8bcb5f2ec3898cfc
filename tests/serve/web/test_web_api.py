"""What programs and pages read, and the messages that say when to read again."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest

from helpers import CHANGE, wait_until
from holdfast.incidents.story import Story
from holdfast.incidents.values import RunView
from holdfast.serve.store import Store
from holdfast.serve.web import app, trouble
from holdfast.serve.web.context import Context
from holdfast.serve.web.heeding import Heeding
from holdfast.serve.web.live import Live
from holdfast.serve.web.stream import Streams
from holdfast.shipment import Run, Shipment
from holdfast.values import AttemptStarted, JobSlowed, RunEnded, RunStarted
from webparts import BEGIN, Running, make_line, make_shipment, running, ship


def test_a_run_is_seen_as_its_events_tell(guard: httpx.Client, stranger: httpx.Client) -> None:
    """The list has it in one line, its own address in full."""
    ship(guard, make_shipment(steps=[41]))
    (line,) = stranger.get("/api/v1/runs").json()["runs"]
    assert (line["run"]["name"], line["now"]["state"], line["now"]["step"]) == ("run of k", "training", 41)
    assert line["now"]["step_s"] == pytest.approx(0.5)
    told = stranger.get("/api/v1/runs/k").json()
    assert (told["view"]["world_size"], told["run"]["key"]) == (2, "k")


def test_what_is_new_shows_at_the_next_look(guard: httpx.Client, stranger: httpx.Client) -> None:
    """Stories go on where they were, and the list follows."""
    ship(guard, make_shipment())
    assert stranger.get("/api/v1/runs/k").json()["view"]["state"] == "training"
    ship(guard, make_shipment(events=[JobSlowed(change=CHANGE)], first=10))
    assert stranger.get("/api/v1/runs/k").json()["view"]["state"] == "slow"
    ship(guard, make_shipment(events=[RunEnded(exit_code=0, reason="succeeded")], first=11))
    (line,) = stranger.get("/api/v1/runs").json()["runs"]
    assert line["now"]["state"] == "ended"


def test_events_are_read_page_by_page(guard: httpx.Client) -> None:
    """``next`` is where the next page begins."""
    ship(guard, make_shipment())
    first = guard.get("/api/v1/runs/k/events?limit=3").json()
    rest = guard.get(f"/api/v1/runs/k/events?after={first['next']}").json()
    names = [each["record"]["event"]["name"] for each in [*first["events"], *rest["events"]]]
    assert names == ["run_started", "attempt_started", "step_seen", "step_seen"]
    assert guard.get(f"/api/v1/runs/k/events?after={rest['next']}").json()["events"] == []


def test_pace_and_ranks_are_told(guard: httpx.Client) -> None:
    """One point per stretch of time, one line per rank."""
    ship(guard, make_shipment(steps=[7]))
    (point,) = guard.get("/api/v1/runs/k/pace?points=10").json()["pace"]
    assert (point["step"], point["ranks"]) == (7, 2)
    assert [rank["rank"] for rank in guard.get("/api/v1/runs/k/ranks").json()["ranks"]] == [0, 1]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs?limit=0",
        "/api/v1/runs?limit=501",
        "/api/v1/runs?limit=x",
        "/api/v1/runs?limit=99999999999999999999999",
        "/api/v1/runs?before=yesterday",
        "/api/v1/runs?text=a%00b",
    ],
)
def test_questions_that_make_no_sense_are_refused_in_one_line(picky: httpx.Client, path: str) -> None:
    """Every number has its bounds."""
    answer = picky.get(path)
    assert (answer.status_code, list(answer.json()), answer.text.count("\n")) == (400, ["error"], 1)


@pytest.mark.parametrize(
    "since", ["2026-11-17T10:00:00", "1969-12-31T23:59:59+00:00", "2200-01-01T00:00:00+00:00"]
)
def test_a_time_that_the_store_cannot_use_is_refused_in_one_line(guard: httpx.Client, since: str) -> None:
    """It says what is wrong with it."""
    ship(guard, make_shipment(steps=[1]))
    answer = guard.get("/api/v1/runs/k/pace", params={"since": since})
    assert (answer.status_code, answer.text.count("\n")) == (400, 1)
    assert since in answer.json()["error"]


@pytest.mark.parametrize("rest", ["", "/pace", "/ranks", "/events", "/orders", "/live"])
def test_a_run_that_is_not_there_is_404_in_one_line(picky: httpx.Client, rest: str) -> None:
    """Whatever is asked of it."""
    for key in ("none", "a%00b", "%ff", "a%2fb"):
        answer = picky.get(f"/api/v1/runs/{key}{rest}")
        assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_the_list_can_be_searched_and_paged(guard: httpx.Client) -> None:
    """By name, and by when runs were heard of."""
    for key in ("a", "b", "c"):
        ship(guard, make_shipment(key))
    page = guard.get("/api/v1/runs?limit=2").json()["runs"]
    assert [line["run"]["key"] for line in page] == ["c", "b"]
    rest = guard.get("/api/v1/runs", params={"before": page[-1]["run"]["heard_at"]}).json()["runs"]
    assert [line["run"]["key"] for line in rest] == ["a"]
    found = guard.get("/api/v1/runs?text=run of b").json()["runs"]
    assert [line["run"]["key"] for line in found] == ["b"]


# --- messages ---------------------------------------------------------------------------------


def _messages(answer: httpx.Response) -> Generator[dict[str, str], None, None]:
    message: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            message[name] = value
        elif message:
            yield message
            message = {}


def test_a_message_says_that_a_run_has_changed(guard: httpx.Client, stranger: httpx.Client) -> None:
    """The first one comes at once, the next when there is something to tell."""
    ship(guard, make_shipment())
    with stranger.stream("GET", "/api/v1/runs/k/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        messages = _messages(answer)
        assert json.loads(next(messages)["data"])["state"] == "training"
        ship(guard, make_shipment(events=[JobSlowed(change=CHANGE)], first=10, steps=[99]))
        told = next(messages)
        seen = json.loads(told["data"])
        assert (told["event"], seen["state"], seen["step"]) == ("changed", "slow", 99)


def test_the_list_is_told_which_run_changed(guard: httpx.Client, stranger: httpx.Client) -> None:
    """A run that nobody knew shows up, too."""
    ship(guard, make_shipment("old"))
    with stranger.stream("GET", "/api/v1/live") as answer:
        messages = _messages(answer)
        assert next(messages)["event"] == "listening"
        ship(guard, make_shipment("new"))
        assert json.loads(next(messages)["data"])["key"] == "new"


def test_of_many_that_change_at_once_none_is_passed_over(store: Store) -> None:
    """Who waits longest comes first; a run that has ended does not change again."""
    live = Live(store)
    keys = [f"k{number}" for number in range(5)]
    live.change(["before"])
    seen = live.last_change
    live.change(keys)
    live.change(["k0"])
    told: list[list[str]] = []
    while (found := live.changes(seen, limit=2))[1]:
        seen = found[0]
        told.append(found[1])
    assert told == [["k1", "k2"], ["k3", "k4"], ["k0"]]
    assert seen == live.last_change
    assert live.changes(seen) == (seen, [])


@pytest.fixture
def brisk(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that tells of changes more often than once a second."""

    def often(context: Context) -> Streams:
        return Streams(context, every_s=0.02, look_every_s=0.1)

    monkeypatch.setattr(app, "Streams", often)
    with running(store) as server:
        yield server


def test_all_runs_that_end_in_the_same_second_are_told(store: Store, brisk: Running) -> None:
    """However many there are."""
    keys = {f"k{number:02}" for number in range(30)}
    store.take([make_shipment(key) for key in sorted(keys)])
    with brisk.client() as client, client.stream("GET", "/api/v1/live") as answer:
        messages = _messages(answer)
        assert next(messages)["event"] == "listening"
        brisk.context.live.change(sorted(keys))
        told = {json.loads(next(messages)["data"])["key"] for _ in keys}
    assert told == keys


def test_who_listens_to_a_run_is_told_when_it_is_forgotten(store: Store, brisk: Running) -> None:
    """It was too old, and nothing of it changes any more."""
    store.take([make_shipment()], heard_at=datetime.now(UTC) - timedelta(days=2))
    with brisk.client() as client, client.stream("GET", "/api/v1/runs/k/live") as answer:
        messages = _messages(answer)
        assert next(messages)["event"] == "changed"
        store.trim(max_age_s=86400.0, max_bytes=None)
        assert [message["event"] for message in messages] == ["gone"]


def test_only_so_many_may_listen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is asked to come later, and gets in when one has gone."""

    def few(context: Context) -> Streams:
        return Streams(context, most_clients=1, every_s=0.05)

    monkeypatch.setattr(app, "Streams", few)
    with running(store) as server, server.client() as one, server.client() as other:

        def code() -> int:
            with other.stream("GET", "/api/v1/live") as answer:
                return answer.status_code

        with one.stream("GET", "/api/v1/live") as answer:
            messages = _messages(answer)  # The connection lasts as long as it does.
            assert next(messages)["event"] == "listening"
            assert code() == 503
            assert other.head("/api/v1/live").status_code == 200
            messages.close()
        wait_until(lambda: code() == 200, "a free place")


def test_a_server_that_ends_ends_its_streams(store: Store) -> None:
    """Nobody who listens keeps it from ending."""
    with ThreadPoolExecutor(1) as pool, running(store) as server, server.client() as client:
        is_heard: list[str] = []

        def listen() -> list[str]:
            with client.stream("GET", "/api/v1/live") as answer:
                for message in _messages(answer):
                    is_heard.append(message["event"])
            return is_heard

        heard = pool.submit(listen)
        wait_until(lambda: is_heard or heard.done(), "the first message")
        server.stop()
        assert heard.result(timeout=60) == ["listening"]


# --- a run that cannot be told ----------------------------------------------------------------


@pytest.fixture
def spoilt(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of two runs, of which one brings out a bug in whoever tells its story."""
    spoilt = RunStarted(run_id="spoilt", argv=["train.py"], pid=7)
    store.take([make_shipment("bad", [spoilt, *BEGIN[1:]]), make_shipment("good")])
    tell = Story.view

    def fail(story: Story) -> RunView:
        view = tell(story)
        if view.run_id == "spoilt":
            raise KeyError("a secret of the run")
        return view

    monkeypatch.setattr(Story, "view", fail)
    monkeypatch.setattr(trouble, "_SAID_S", {})
    return store


@pytest.mark.parametrize("path", ["/api/v1/runs", "/", "/part/runs", "/incidents", "/reliability"])
def test_one_run_that_cannot_be_told_does_not_hide_the_others(
    spoilt: Store, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """It is left out; the log says which one it is, and nothing of what it holds."""
    with running(spoilt) as server, server.client() as client:
        answer = client.get(path)
    assert answer.status_code == 200
    assert ("run of good" in answer.text, "run of bad" in answer.text) == (
        path not in ("/incidents", "/reliability"),
        False,
    )
    said = [record.getMessage() for record in caplog.records]
    assert "run 'bad' is left out where many are shown: KeyError" in said
    assert "secret" not in caplog.text


def test_who_listens_to_all_hears_of_the_others(spoilt: Store) -> None:
    """The stream goes on."""
    with (
        running(spoilt) as server,
        server.client() as client,
        client.stream("GET", "/api/v1/live") as answer,
    ):
        messages = _messages(answer)
        assert next(messages)["event"] == "listening"
        server.context.live.change(["bad", "good"])
        assert json.loads(next(messages)["data"])["key"] == "good"


# --- stories ----------------------------------------------------------------------------------


def test_stories_make_room_for_others_and_come_back(store: Store) -> None:
    """Memory is bounded, and what is shown does not depend on it."""
    live = Live(store, most_weight=250)
    for number in range(6):
        store.take([make_shipment(f"k{number}", steps=[number])])
    assert [_view(live, f"k{number}").step for number in range(6)] == list(range(6))
    assert len(live._entries) <= 3
    assert _view(live, "k0").step == 0


def test_a_view_is_not_made_again_while_nothing_changes(store: Store) -> None:
    """To look is cheap."""
    live = Live(store)
    store.take([make_shipment()])
    live.change(["k"])
    assert live.view("k") is live.view("k")
    store.take([make_shipment(events=[JobSlowed(change=CHANGE)], first=10)])
    live.change(["k"])
    assert _view(live, "k").state == "slow"
    assert live.view("none") is None


def test_steps_of_an_earlier_attempt_do_not_count(store: Store) -> None:
    """After a restart a run begins again, whatever was seen before."""
    live = Live(store)
    store.take([make_shipment(steps=[500])])
    assert _view(live, "k").step == 500
    again = make_line(AttemptStarted(world_size=2, nodes=1, ranks=[0, 1], pids=[8, 9]), 50, attempt=1)
    store.take([Shipment(run=Run(key="k", name="n"), node=0, events=[msgspec.Raw(again[:-1])])])
    live.change(["k"])
    assert _view(live, "k").step == -1


def test_who_heeds_is_told_before_and_after(store: Store) -> None:
    """In one thread, once for each change, and one who fails does not stop the others."""
    told: list[tuple[str, str | None, str]] = []

    def heed(key: str, before: RunView | None, after: RunView) -> None:
        told.append((key, before.state if before else None, after.state))
        if key == "bad":
            raise RuntimeError("on purpose")

    live = Live(store)
    heeding = Heeding(live, [heed])
    heeding.start()
    for key in ("bad", "k"):
        store.take([make_shipment(key)])
        live.change([key])
        heeding.change([key])
        wait_until(lambda: key in [each[0] for each in told])  # noqa: B023 - it is called here and now.
    store.take([make_shipment(events=[JobSlowed(change=CHANGE)], first=10)])
    live.change(["k"])
    heeding.change(["k"])
    wait_until(lambda: len(told) == 3)
    heeding.end()
    assert told == [("bad", None, "training"), ("k", None, "training"), ("k", "training", "slow")]


def _view(live: Live, key: str) -> RunView:
    found = live.view(key)
    assert found is not None
    return found
