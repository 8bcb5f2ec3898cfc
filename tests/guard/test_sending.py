"""What reaches a server, in which pieces, and what happens while it is away or does not want it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from helpers import EVENTS, STAMP, Ears, wait_until
from holdfast.errors import InputError
from holdfast.guard.eventlog import append_line, encode, log_name
from holdfast.guard.posting import Poster, parse_server, token_reader
from holdfast.guard.rundir import make_info
from holdfast.guard.sender import ASK_EVERY_S, CATCH_UP_S, EVERY_S, LONGEST_S, Sender
from holdfast.guard.sending import Sending, flush, flush_within, lay_down, make_sender, nodes_of, ship
from holdfast.guard.spool import describe_run
from holdfast.shipment import Order
from holdfast.telemetry import Summary
from shipmentserver import ShipmentServer, serving

RUNNER = """
import sys, time
from pathlib import Path
from holdfast.guard.posting import make_poster
from holdfast.guard.say import Say
from holdfast.guard.sending import Sending

Sending(Path(sys.argv[1]), make_poster(sys.argv[2]), node=0, key="k", say=Say()).start()
time.sleep(60)
"""


class Node:
    """What one node has written, and how it is sent; time passes as the test wants it."""

    def __init__(self, run_dir: Path, ears: Ears, url: str, *, node: int = 0, token: str = "") -> None:
        run_dir.mkdir(exist_ok=True)
        self.run_dir = run_dir
        self.node = node
        self.written = 0
        self.url, self.ears, self.token = url, ears, token
        self.now_s = 0.0
        self.pauses_s: list[float] = []
        self.sender = self.start()

    def start(self) -> Sender:
        """A sender that knows nothing of another one before it."""
        poster = Poster(parse_server(self.url), lambda: self.token)
        return make_sender(self.run_dir, poster, node=self.node, key="k", say=self.ears.say)

    def write(self, events: int, rows: int = 0) -> None:
        lines = b""
        for number in range(events):
            self.written += 1
            stamp = msgspec.structs.replace(STAMP, event_id=f"{self.node}-{self.written}", node=self.node)
            lines += encode(stamp, EVENTS[number % len(EVENTS)])
        if lines:
            append_line(self.run_dir / log_name(self.node), lines)
        for number in range(rows):
            write_row(self.run_dir, self.node, number)

    def turn(self, turns: int = 1) -> None:
        """Let it do something, as often; what it wants to wait is over at once."""
        for _ in range(turns):
            pause_s = self.sender.turn(self.now_s, timeout_s=5.0)
            self.pauses_s.append(pause_s)
            self.now_s += pause_s

    def send_all(self) -> None:
        self.turn()
        while not self.sender.is_done:
            self.turn()


def write_row(run_dir: Path, node: int, number: int) -> None:
    row = Summary(at=f"t{number}", node=node, attempt=0, steps={"0": number}, duration_s={})
    append_line(run_dir / "summaries.jsonl", msgspec.json.encode(row) + b"\n")


@pytest.fixture
def server() -> Iterator[ShipmentServer]:
    """A server that is there."""
    with serving() as made:
        yield made


@pytest.fixture
def node(tmp_path: Path, ears: Ears, server: ShipmentServer) -> Iterator[Node]:
    """Node 0 of a run."""
    made = Node(tmp_path / "run", ears, server.url, token="secret")
    yield made
    made.sender.close()


def test_what_was_written_arrives_once(node: Node, server: ShipmentServer) -> None:
    """Events as they are in the log, rows of the node, the token, and which run it is."""
    node.write(len(EVENTS), rows=3)
    node.send_all()
    node.write(2, rows=0)
    node.send_all()
    lines = (node.run_dir / "events.jsonl").read_bytes().splitlines()
    sent = [bytes(raw) for shipment in server.shipments for raw in shipment.events]
    assert sent == lines
    assert list(server.rows.values()) == [1, 1, 1]
    assert set(server.tokens) == {"Bearer secret"}
    assert {(each.run.key, each.run.name, each.node) for each in server.shipments} == {("k", "run", 0)}
    assert node.sender.taken == len(EVENTS) + 5


def test_the_run_is_described_by_its_own_file(node: Node, server: ShipmentServer) -> None:
    """One with another key is of another run, in the same folder."""
    info = make_info(
        run_id="id", argv=["x"], rings=Path(), settings={}, launch={"command": ["train.py", "-v"]}
    )
    file = node.run_dir / "run.json"
    for key in ("other", "k"):
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(info, key=key)))
        node.write(1)
        node.send_all()
    first, second = (each.run for each in server.shipments)
    assert (first.run_id, first.command) == ("", [])
    assert (second.run_id, second.command, second.started_at) == ("id", ["train.py", "-v"], info.started_at)


def test_rows_of_other_nodes_are_theirs(node: Node, server: ShipmentServer) -> None:
    """On a shared file system all write into one file; node 1 and 10 are not node 0."""
    for number in range(3):
        for other in (0, 1, 10):
            write_row(node.run_dir, other, number)
    node.send_all()
    assert set(server.rows) == {(0, "t0"), (0, "t1"), (0, "t2")}
    for _ in range(3):
        write_row(node.run_dir, 1, 9)
    node.turn()
    node.turn()
    assert len(server.rows) == 3
    assert node.sender.is_done


def test_without_news_only_node_0_asks_for_orders(
    tmp_path: Path, ears: Ears, node: Node, server: ShipmentServer
) -> None:
    """Every other second, with nothing in it."""
    other = Node(tmp_path / "run", ears, server.url, node=1)
    other.turn(5)
    assert server.requests == 0
    node.turn(9)
    assert set(node.pauses_s) == {EVERY_S}
    assert server.requests == 1 + 8 * EVERY_S // ASK_EVERY_S
    assert not any(each.events or each.summaries for each in server.shipments)


@pytest.mark.parametrize(
    ("asked_s", "kept_s"), [(4.0, 4.0), (0.001, EVERY_S), (1e9, LONGEST_S), (-1.0, EVERY_S)]
)
def test_a_server_of_many_is_sent_to_less_often(
    node: Node, server: ShipmentServer, asked_s: float, kept_s: float
) -> None:
    """As it asks, within reason; and when it no longer does, as before."""
    server.every_s = asked_s
    node.write(1)
    node.turn(3)
    assert node.pauses_s == [kept_s] * 3
    server.every_s = 1.0
    node.write(1)
    node.turn(2)
    assert node.pauses_s[-1] == EVERY_S


def test_a_killed_writers_line_is_left_out(node: Node, server: ShipmentServer, ears: Ears) -> None:
    """It would spoil the whole shipment."""
    node.write(1)
    with (node.run_dir / "events.jsonl").open("ab") as log:
        log.write(b'{"schema":1,"event_id"\n\xff\xfe\n[1,2]\n' + b"[" * 100_000 + b"\n\n")
    node.write(1)
    node.send_all()
    assert len(server.events) == 2
    assert node.sender.refused == 5
    assert len([line for line in ears.lines() if "cannot be sent" in line]) == 1


def test_an_hour_without_a_server_loses_nothing(tmp_path: Path, ears: Ears) -> None:
    """Pauses grow to half a minute; then it catches up in bounded batches with a pause between them."""
    with serving() as gone:
        port = gone.port
    node = Node(tmp_path / "run", ears, f"http://127.0.0.1:{port}")
    for _ in range(12):
        node.write(250)
        node.turn()
    waits = node.pauses_s
    assert all(0.5 <= pause_s <= LONGEST_S for pause_s in waits)
    assert waits[0] <= 1.0
    assert min(waits[-3:]) >= LONGEST_S / 2
    with serving(port) as back:
        node.pauses_s.clear()
        node.send_all()
        assert len(back.events) == 12 * 250
        assert max(len(each.events) + len(each.summaries) for each in back.shipments) <= 2000
        assert set(node.pauses_s[:-1]) == {CATCH_UP_S}
    node.sender.close()
    said = ears.lines()
    assert len([line for line in said if "nothing can be sent" in line]) == 1
    assert said[-1].endswith("answers again")


@pytest.mark.parametrize("failure", [500, 502, 404, "garbage", "huge", "reset"])
def test_a_failure_is_not_a_receipt(
    node: Node, server: ShipmentServer, tmp_path: Path, failure: int | str
) -> None:
    """Nothing is taken for sent that was not acknowledged, also by a sender that is started after it."""
    node.write(5, rows=2)
    server.fail = failure
    node.turn(2)
    assert node.sender.taken == 0
    assert node.sender.trouble is not None
    server.fail = None
    node.sender.close()
    node.sender = node.start()
    node.send_all()
    assert len(server.events) == 5
    assert len(server.rows) == 2


@pytest.mark.parametrize("failure", ["hold", "drip"])
def test_a_server_that_does_not_get_done_is_left(node: Node, server: ShipmentServer, failure: str) -> None:
    """Neither one that says nothing, nor one that says it too slowly."""
    node.write(1)
    server.fail = failure
    node.sender.turn(0.0, timeout_s=0.3)
    assert node.sender.trouble is not None
    assert node.sender.trouble.failure == "away"
    server.hold.set()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_says_when_to_come_back(node: Node, server: ShipmentServer, status: int) -> None:
    """And that is when we do, or a little later; nonsense is not heeded."""
    node.write(1)
    server.fail = status
    for after, least, most in (
        ("17", 17, 17 * 1.2),
        ("1e9", 0.5, 30),
        ("-3", 0.5, 30),
        ("10000000", 300, 360),
    ):
        server.headers = {"Retry-After": after}
        node.turn()
        assert least <= node.pauses_s[-1] <= most
    at = time.time() + 100
    server.headers = {"Retry-After": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at))}
    node.turn()
    assert 90 <= node.pauses_s[-1] <= 121


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_is_said_once_and_may_be_replaced(
    tmp_path: Path, ears: Ears, server: ShipmentServer, status: int
) -> None:
    """The file is read again before every attempt; what it holds is never said."""
    file = tmp_path / "token"
    file.write_text("wrong\n")
    poster = Poster(parse_server(server.url), token_reader({"HOLDFAST_TOKEN": "unused"}, str(file)))
    node = Node(tmp_path / "run", ears, server.url)
    node.sender = make_sender(node.run_dir, poster, node=0, key="k", say=ears.say)
    node.write(1)
    server.fail = status
    node.turn(3)
    assert node.pauses_s == [LONGEST_S] * 3
    file.write_text("right\n")
    server.fail = None
    node.send_all()
    assert server.tokens == ["Bearer wrong"] * 3 + ["Bearer right"]
    assert len(server.events) == 1
    heard = ears.lines()
    assert len([line for line in heard if f"answers {status}" in line]) == 1
    assert not any("wrong" in line or "right" in line for line in heard)
    node.sender.close()


def test_what_is_too_large_is_halved(node: Node, server: ShipmentServer) -> None:
    """Down to what the server takes; a line that is too large by itself is left out."""
    server.most_bytes = 3000
    node.write(60, rows=20)
    with (node.run_dir / "events.jsonl").open("ab") as log:
        log.write(b'{"event_id":"big","name":"x","pad":"' + b"x" * 5000 + b'"}\n')
    node.write(20)
    node.send_all()
    assert len(server.events) == 80
    assert len(server.rows) == 20
    assert node.sender.refused == 1
    assert all(pause_s <= EVERY_S for pause_s in node.pauses_s)


def test_a_line_that_is_refused_does_not_hold_up_the_others(node: Node, server: ShipmentServer) -> None:
    """It is found by halving, and left out; what a receipt refuses is left out at once."""
    server.bad_words = b"poison"
    node.write(30)
    append_line(node.run_dir / "events.jsonl", b'{"event_id":"bad","name":"poison"}\n')
    node.write(30)
    node.send_all()
    assert len(server.events) == 60
    assert node.sender.refused == 1
    server.refused = ["no event"]
    node.write(3)
    node.send_all()
    assert node.sender.refused == 2


def test_lines_are_counted_for_which_no_reason_is_given(node: Node, server: ShipmentServer) -> None:
    """Of very many that are refused a server names the first only."""
    server.refused, server.refused_more = ["no event", "and 30 more"], 29
    node.write(40)
    node.send_all()
    assert (node.sender.taken, node.sender.refused) == (9, 31)


def test_a_server_that_refuses_everything_costs_no_line(node: Node, server: ShipmentServer) -> None:
    """Then the fault is not the lines', and they are sent when it is mended."""
    server.fail = 400
    node.write(8)
    node.turn(8)
    assert node.sender.refused == 0
    assert node.pauses_s[-1] == LONGEST_S
    server.fail = None
    node.send_all()
    assert len(server.events) == 8


def test_a_redirect_is_not_followed(node: Node, server: ShipmentServer, ears: Ears) -> None:
    """Nobody can send the token elsewhere."""
    with serving() as elsewhere:
        server.fail, server.headers = 307, {"Location": f"{elsewhere.url}/api/v1/shipments"}
        node.write(1)
        node.turn()
        assert elsewhere.requests == 0
    assert any("redirects are not followed" in line for line in ears.lines())


def test_another_server_gets_everything(tmp_path: Path, ears: Ears, server: ShipmentServer) -> None:
    """What is remembered as sent is what one server has."""
    node = Node(tmp_path / "run", ears, server.url)
    node.write(3)
    node.send_all()
    with serving() as second:
        other = Node(tmp_path / "run", ears, second.url)
        other.send_all()
        assert len(second.events) == 3
    again = Node(tmp_path / "run", ears, server.url)  # The file remembers the second one now.
    again.send_all()
    assert len(server.events) == 3
    for each in (node, other, again):
        each.sender.close()


def test_a_disk_that_is_full_does_not_stop_sending(
    small_disk: Path, ears: Ears, server: ShipmentServer
) -> None:
    """What cannot be remembered is sent again by the next sender, and known there."""
    node = Node(small_disk / "run", ears, server.url)
    node.write(2)
    (small_disk / "filler").write_bytes(b"x" * 100)
    with pytest.raises(OSError, match="No space"):
        (small_disk / "more").write_bytes(b"x" * 8192)
    node.send_all()
    assert len(server.events) == 2
    node.sender.close()


# --- the thread -------------------------------------------------------------------------------


def test_the_thread_sends_and_lays_down_orders(tmp_path: Path, ears: Ears, server: ShipmentServer) -> None:
    """An order whose id would lead out of the folder is left out."""
    node = Node(tmp_path / "run", ears, server.url)
    good = Order(order_id="a-1", kind="act", words="S2", who="me")
    server.orders = [good, Order(order_id="../../x", kind="undo"), Order(order_id="", kind="undo")]
    sending = Sending(node.run_dir, node.start()._poster, node=0, key="k", say=ears.say)
    sending.start()
    try:
        node.write(2)
        wait_until((node.run_dir / "orders" / "a-1.json").is_file, "the order")
        wait_until(lambda: len(server.events) == 2, "the events")
        assert [file.name for file in (node.run_dir / "orders").iterdir()] == ["a-1.json"]
        assert msgspec.json.decode((node.run_dir / "orders" / "a-1.json").read_bytes(), type=Order) == good
        assert not (tmp_path / "x.json").exists()
        node.write(1)
    finally:
        sending.stop(flush_s=10.0)
    assert len(server.events) == 3


def test_orders_of_other_nodes_receipts_are_left_alone(
    tmp_path: Path, ears: Ears, server: ShipmentServer
) -> None:
    """Only node 0 carries them out."""
    server.orders = [Order(order_id="1", kind="undo")]
    node = Node(tmp_path / "run", ears, server.url, node=3)
    sending = Sending(node.run_dir, node.start()._poster, node=3, key="k", say=ears.say)
    sending.start()
    node.write(1)
    wait_until(lambda: server.events, "the event")
    sending.stop()
    assert not (node.run_dir / "orders").exists()


def test_a_server_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, ears: Ears, server: ShipmentServer
) -> None:
    """Neither of the guard nor of the launcher."""
    node = Node(tmp_path / "run", ears, server.url)
    server.fail = "hold"
    sending = Sending(node.run_dir, node.start()._poster, node=0, key="k", say=ears.say)
    sending.start()
    wait_until(lambda: server.requests, "a request")
    began_s = time.monotonic()
    sending.stop()
    flush_within(node.run_dir, node.start()._poster, node=0, key="k", limit_s=0.3)
    assert time.monotonic() - began_s < 5.0
    server.hold.set()
    wait_until(lambda: not sending._thread.is_alive(), "the thread's end")


def test_a_token_without_encryption_is_warned_of(tmp_path: Path, ears: Ears) -> None:
    """Not on this machine, and not where there is no token."""
    for url, token, warnings in (
        ("http://127.0.0.1:1", "t", 0),
        ("http://localhost:1", "t", 0),
        ("https://example.invalid", "t", 0),
        ("http://example.invalid", "", 0),
        ("http://example.invalid", "t", 1),
    ):
        poster = Poster(parse_server(url), lambda token=token: token)  # type: ignore[misc]
        Sending(tmp_path, poster, node=0, key="k", say=ears.say)
        assert len([line for line in ears.lines() if "is not encrypted" in line]) == warnings


@pytest.mark.processes
def test_a_sender_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, ears: Ears, server: ShipmentServer
) -> None:
    """In mid-flight too: what was not acknowledged comes again, what was does not."""
    node = Node(tmp_path / "run", ears, server.url)
    node.write(40, rows=5)
    command = [sys.executable, "-c", RUNNER, str(node.run_dir), server.url]
    with subprocess.Popen(command) as first:
        wait_until(lambda: len(server.events) == 40 and len(server.rows) == 5, "the first lines")
        wait_until((node.run_dir / ".sent.node0.json").is_file, "what is remembered")
        server.fail = "hold"
        node.write(7)
        wait_until(lambda: len(server.events) == 47, "a shipment that is not acknowledged")
        os.kill(first.pid, signal.SIGKILL)
    server.fail = None
    server.hold.set()
    server.shipments.clear()
    node.write(3)
    with subprocess.Popen(command) as second:
        wait_until(lambda: len(server.events) == 50, "the rest")
        second.kill()
    assert sum(len(each.events) for each in server.shipments) == 10
    assert set(server.rows.values()) == {1}


# --- later ------------------------------------------------------------------------------------


def test_what_a_server_has_missed_is_sent_later(tmp_path: Path, ears: Ears, server: ShipmentServer) -> None:
    """Of all nodes, and the second time nothing is left."""
    run_dir = tmp_path / "run"
    for number in (0, 1, 12):
        Node(run_dir, ears, server.url, node=number).write(4, rows=2)
    info = make_info(run_id="id", argv=["x"], rings=Path(), settings={}, launch={})
    (run_dir / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(info, key="mine")))
    poster = Poster(parse_server(server.url), lambda: "")
    counted: list[int] = []
    [shipped] = ship([run_dir], poster, say=ears.say, on_lines=counted.append)
    assert (shipped.lines, shipped.key, shipped.trouble, sum(counted)) == (18, "mine", "", 18)
    assert (len(server.events), len(server.rows)) == (12, 6)
    [again] = ship([run_dir], poster, say=ears.say)
    assert again.lines == 0
    poster.close()


def test_a_server_that_is_away_is_told(tmp_path: Path, ears: Ears) -> None:
    """What was not sent is not forgotten."""
    with serving() as gone:
        url = gone.url
    Node(tmp_path / "run", ears, url).write(1)
    [shipped] = ship([tmp_path / "run"], Poster(parse_server(url), lambda: ""), say=ears.say)
    assert (shipped.lines, shipped.trouble) == (0, "Connection refused")


def test_nothing_is_sent_where_one_folder_is_no_run_directory(
    tmp_path: Path, ears: Ears, server: ShipmentServer
) -> None:
    """It is named."""
    Node(tmp_path / "run", ears, server.url).write(1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "events.nodex.jsonl").write_text("")
    poster = Poster(parse_server(server.url), lambda: "")
    with pytest.raises(InputError, match=r"other: no events.jsonl in it"):
        ship([tmp_path / "run", tmp_path / "other"], poster, say=ears.say)
    assert server.requests == 0
    assert nodes_of(tmp_path / "run") == [0]
    assert log_name(0) == "events.jsonl"


def test_the_first_trouble_ends_a_flush(node: Node, server: ShipmentServer) -> None:
    """Who is about to end does not wait for a server that is not there."""
    node.write(2)
    server.fail = 500
    assert flush(node.sender, until_s=time.monotonic() + 20) is False
    assert server.requests == 1
    server.fail = None
    assert flush(node.sender, until_s=time.monotonic() + 20) is True


def test_an_order_is_not_laid_down_twice_while_it_lies_there(tmp_path: Path) -> None:
    """Receipts repeat it until it is answered."""
    lay_down(tmp_path, Order(order_id="1", kind="undo"))
    before = (tmp_path / "orders" / "1.json").stat()
    lay_down(tmp_path, Order(order_id="1", kind="undo"))
    assert (tmp_path / "orders" / "1.json").stat().st_ino == before.st_ino
    lay_down(tmp_path / "gone", Order(order_id="1", kind="undo"))


def test_a_run_directory_may_have_any_name(tmp_path: Path) -> None:
    """Also one that is not of characters: it can be sent, with a mark for what cannot be told."""
    folder = tmp_path / os.fsdecode(b"run-\xff")
    folder.mkdir()
    run = describe_run(folder)
    assert run.name == "run-\ufffd"
    msgspec.json.encode(run)
