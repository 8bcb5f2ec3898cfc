"""Words of a hostile job: in pages, pictures, metrics, reports, messages and terminals they stay words."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import typing
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from attackparts import BEGIN, JSON, TOKEN, Attacked, make_line, ship
from clicalls import call
from helpers import EVENTS
from holdfast.shipment import Run, Shipment
from holdfast.values import AnyEvent, RunStarted

pytestmark = pytest.mark.processes

EVIL = (
    "</title></style></svg><script>evil()</script><img src=x onerror=evil()>\"' onfocus=evil() x='"
    "{{7*7}}\x1b[31m\x1b]0;evil\x07\u202e\n# TYPE evil counter\nevil 1\n"
)
_PARTS = ("header", "figures", "pace", "incidents", "workers", "schedule", "events", "act", "diagnosis")
_PAGES = [
    "/",
    "/part/runs",
    "/runs/evil",
    "/runs/evil?events=0",
    "/incidents",
    "/part/all-incidents",
    "/reliability",
    *(f"/runs/evil/part/{part}" for part in _PARTS),
]


def make_hostile(event: AnyEvent) -> AnyEvent:
    """Return an event in which every text is hostile that may be any text."""
    raw = msgspec.to_builtins(event)
    _worsen(raw, raw, type(event))
    return msgspec.convert(raw, type(event))


def _worsen(node: Any, whole: Any, kind: type[AnyEvent]) -> None:
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, str):
            node[key] = EVIL
            try:
                msgspec.convert(whole, kind)
            except msgspec.ValidationError:  # One of a few words.
                node[key] = value
        elif isinstance(value, dict | list):
            _worsen(value, whole, kind)


HOSTILE: list[AnyEvent] = [*BEGIN, *EVENTS, *map(make_hostile, EVENTS)]


@pytest.fixture(scope="module")
def guard(server: Attacked) -> Iterator[httpx.Client]:
    """Somebody with the token, who has sent a run all of whose texts are hostile."""
    lines = [msgspec.Raw(make_line(event, number, host=EVIL)) for number, event in enumerate(HOSTILE)]
    run = Run(key="evil", name=EVIL, run_id=EVIL, host=EVIL, command=[EVIL], versions={EVIL: EVIL})
    with server.client() as client:
        answer = ship(client, Shipment(run=run, node=0, events=lines))
        assert (answer.json()["taken"], answer.json()["refused"]) == (len(lines), [])
        client.post("/sign-in", data={"token": TOKEN, "name": "<b>evil</b>"})
        yield client


class _Page(HTMLParser):
    """Notes everything in a page that could do something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("iframe", "object", "embed", "base") or (
            tag in ("script", "img") and not _is_ours(values)
        ):
            self.found.append(f"<{tag} {attrs}>")
        for name, value in attrs:
            if name.startswith("on") or name in ("x='", "style", "srcdoc"):
                self.found.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action", "formaction", "xlink:href") and not _is_local(value or ""):
                self.found.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)


def _is_ours(values: dict[str, str | None]) -> bool:
    return (values.get("src") or "").startswith("/static/")


def _is_local(address: str) -> bool:
    return address.startswith(("/", "#", "?")) and not address.startswith(("//", "/\\"))


@pytest.mark.parametrize("path", _PAGES)
def test_a_page_shows_them_as_text(guard: httpx.Client, path: str) -> None:
    """No tag, handler or address on any page comes from a job; nor does anything that turns text around."""
    answer = guard.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 200
    page = _Page()
    page.feed(answer.text)
    assert page.found == []
    for letter in ("\x1b", "\x07", "\u202e", ">49<"):
        assert letter not in answer.text
    assert TOKEN not in answer.text


def test_a_page_of_trouble_shows_them_as_text(guard: httpx.Client) -> None:
    """What was asked for is repeated, and no more than that."""
    for path in ("/runs/<script>evil()<%2fscript>", "/<img src=x onerror=evil()>", "/static/<script>"):
        answer = guard.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 404
        page = _Page()
        page.feed(answer.text)
        assert page.found == []


def test_metrics_hold_them_in_labels(guard: httpx.Client) -> None:
    """A new line in a name does not begin a metric of its own."""
    text = guard.get("/metrics").text
    families = {family.name for family in text_string_to_metric_families(text)}
    assert families
    assert all(name.startswith(("holdfast_", "process_")) for name in families), families
    assert TOKEN not in text


def test_json_and_streams_hold_them_in_strings(guard: httpx.Client) -> None:
    """Neither ends the string or the message that it is in."""
    view = guard.get("/api/v1/runs/evil").json()
    assert view["run"]["name"] == EVIL
    with guard.stream("GET", "/api/v1/runs/evil/live") as stream:
        lines = stream.iter_lines()
        heard = [next(lines) for _ in range(4)]
    assert [line.partition(":")[0] for line in heard] == ["event", "id", "data", ""]


def test_orders_of_a_hostile_person_are_refused_or_stay_text(guard: httpx.Client) -> None:
    """Who has the token may write what is printable; it is shown as text."""
    answer = guard.post("/api/v1/runs/evil/orders", json={"kind": "profile", "who": EVIL}, headers=JSON)
    assert answer.status_code in (400, 409)
    words = {"kind": "set", "words": "a=<script>evil()</script>", "who": "<img src=x onerror=evil()>"}
    assert ship(guard, Shipment(run=Run(key="going", name="going"), node=0)).status_code == 200
    assert guard.post("/api/v1/runs/going/orders", json=words, headers=JSON).status_code == 201
    page = _Page()
    page.feed(guard.get("/runs/going", headers={"Accept": "text/html"}).text)
    assert page.found == []


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory full of them."""
    folder = tmp_path / "run"
    log = folder / "logs" / "attempt_0" / "rank_0.log"
    log.parent.mkdir(parents=True)
    log.write_text(EVIL * 20)
    lines = [make_line(event, number, host=EVIL) + b"\n" for number, event in enumerate(HOSTILE)]
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    return folder


def test_a_report_and_a_terminal_show_them_as_text(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escape sequences reach no terminal, and tags no browser."""
    assert call(["report", str(run_dir), "--out", str(run_dir / "report.html")], monkeypatch) == 0
    said = capsys.readouterr()
    assert "evil" in said.out
    page = _Page()
    page.feed((run_dir / "report.html").read_text())
    assert page.found == []
    for text in (said.out, said.err, (run_dir / "report.html").read_text()):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_numbers_that_no_job_can_have_break_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step times of nothing and of for ever, steps beyond all numbers, and a clock that goes backwards."""
    for seed in range(8):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        events = [msgspec.json.encode(event) + b"\n" for event in make_extremes(chance)]
        (folder / "events.jsonl").write_bytes(b"".join(events))
        rows = [
            {"at": f"2026-11-17T0{8 + number % 2}:00:0{number}+00:00", "node": 0, "attempt": 0}
            | {"steps": {"0": chance.choice(_INTS)}, "duration_s": {"0": chance.choice(_FLOATS)}}
            for number in range(9)
        ]
        (folder / "summaries.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        assert call(["report", str(folder), "--out", str(folder / "report.html")], monkeypatch) == 0
        assert "Traceback" not in capsys.readouterr().err


def test_a_hostile_server_cannot_speak_to_the_terminal(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it answers to ``holdfast ship`` is shown in plain letters."""
    reply = f"HTTP/1.1 400 Bad\r\nContent-Length: {len(EVIL.encode())}\r\n\r\n{EVIL}".encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer, args=[listener, reply])
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            call(["ship", str(run_dir), "--server", url], monkeypatch)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    said = capsys.readouterr()
    assert not {"\x1b", "\x07", "\u202e"} & set(said.out + said.err)


def _answer(listener: socket.socket, reply: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 20)
                connection.sendall(reply)


# --- numbers ------------------------------------------------------------------------------------

_INTS = [0, -1, 2**63 - 1, 2**63, 10**30, -(10**30)]
_FLOATS = [0.0, -1.0, 1e308, -1e308, 5e-324]
_WORST: dict[Any, list[Any]] = {str: [EVIL, ""], bool: [False, True], int: _INTS, float: _FLOATS}


def _make_extreme(kind: Any, chance: random.Random) -> Any:
    """Return what a field of this type may hold at the worst, as JSON has it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _WORST:
        return chance.choice(_WORST[kind])
    if origin is typing.Literal:
        return chance.choice(inner)
    if origin is list:
        return [_make_extreme(inner[0], chance) for _ in range(chance.choice([0, 1, 3]))]
    if origin is tuple:
        return [_make_extreme(each, chance) for each in inner if each is not ...]
    if origin is dict:
        return {str(_make_extreme(inner[0], chance)): _make_extreme(inner[1], chance) for _ in range(2)}
    if inner:  # One of several types.
        return _make_extreme(chance.choice(inner), chance)
    if kind is type(None):
        return None
    config = kind.__struct_config__
    tag = {} if config.tag is None else {config.tag_field: config.tag}
    return tag | {each.encode_name: _make_extreme(each.type, chance) for each in msgspec.structs.fields(kind)}


def make_extremes(chance: random.Random) -> list[dict[str, Any]]:
    """Return lines of a log in which every number is the worst that it may be."""
    stamp = {"schema": 1, "at": "2026-11-17T10:00:00+00:00", "host": EVIL, "node": 0, "type": "instant"}
    events = [
        stamp
        | {"event_id": f"{number}-{kind.__name__}", "attempt": chance.choice(_INTS[:4])}
        | _make_extreme(kind, chance)
        for kind in typing.get_args(AnyEvent)
        for number in range(4)
    ]
    chance.shuffle(events)
    return events[: chance.choice([3, 12, 100])]


@pytest.mark.parametrize("seed", range(6))
def test_numbers_that_no_job_can_have_break_no_page(guard: httpx.Client, server: Attacked, seed: int) -> None:
    """Nor does any of them keep the server busy."""
    events = make_extremes(random.Random(seed))
    body = {"run": {"key": f"n{seed}", "name": "n"}, "node": 0, "events": events}
    answer = guard.post("/api/v1/shipments", content=msgspec.json.encode(body), headers=JSON)
    assert answer.status_code == 200
    pages = [page.replace("evil", f"n{seed}") for page in _PAGES]
    reading = [f"/api/v1/runs/n{seed}{part}" for part in ("", "/pace", "/ranks", "/events", "/orders")]
    for path in (*pages, *reading, "/metrics", "/api/v1/runs"):
        assert guard.get(path).status_code == 200, path
    assert "Traceback" not in server.said()


def test_an_answer_has_a_bound_however_large_events_are(guard: httpx.Client, server: Attacked) -> None:
    """A page of the log ends after 8 MB; all of it is there, page by page."""
    sent = 0
    for part in range(4):
        lines = [
            msgspec.Raw(make_line(RunStarted(run_id="x", argv=["w" * 250_000], pid=7), 12 * part + number))
            for number in range(12)
        ]
        answer = ship(guard, Shipment(run=Run(key="large", name="large"), node=0, events=lines))
        sent += answer.json()["taken"]
    after, found = 0, 0
    while True:
        page = guard.get("/api/v1/runs/large/events", params={"after": after, "limit": 5000})
        assert len(page.content) < 9 << 20
        if not page.json()["events"]:
            break
        after, found = page.json()["next"], found + len(page.json()["events"])
    assert (found, sent) == (48, 48)
