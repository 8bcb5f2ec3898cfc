"""A folder of run directories that is followed: real files, as launchers and guards leave them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from helpers import wait_until
from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.store import Store
from holdfast.serve.web import folder as following
from holdfast.serve.web.folder import Folder
from holdfast.serve.web.notebook import Notebook
from holdfast.serve.web.reading import read_news
from holdfast.serve.web.writer import Writer
from holdfast.values import AnyEvent, RunEnded
from webparts import BEGIN, make_line, make_summary

_INFO = {
    "schema": 1,
    "run_id": "x",
    "argv": ["train.py"],
    "started_at": "2026-11-17T10:00:00+00:00",
    "host": "a",
    "launcher_pid": 1,
    "rings": "",
    "settings": {},
    "launch": {"command": ["train.py", "--fast"]},
    "versions": {"torch": "2.7"},
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """An empty folder of runs."""
    folder = tmp_path / "runs"
    (folder / ".holdfast").mkdir(parents=True)
    return folder


@pytest.fixture
def writer(store: Store) -> Iterator[Writer]:
    """A writer that is at work."""
    started = Writer(store, on_taken=lambda shipments: None, counters=ServerCounters())
    started.start()
    yield started
    started.end()


def _notebook(runs: Path, *, is_fresh: bool = False, url: str = "url") -> Notebook:
    return Notebook(runs / ".holdfast" / "followed.json", store_url=url, is_fresh=is_fresh)


def _make_run(runs: Path, name: str, *, key: str = "", age_s: float = 0.0) -> Path:
    run_dir = runs / name
    run_dir.mkdir()
    _write_info(run_dir, key or f"key of {name}")
    _write(run_dir, "events.jsonl", *BEGIN)
    then_s = time.time() - age_s
    os.utime(run_dir / "events.jsonl", (then_s, then_s))
    return run_dir


def _write_info(run_dir: Path, key: str, **fields: str) -> None:
    """As launchers do: one file takes the place of another."""
    fresh = run_dir / "run.new"
    fresh.write_bytes(msgspec.json.encode(_INFO | {"key": key} | fields))
    fresh.rename(run_dir / "run.json")


def _write(run_dir: Path, file: str, *events: AnyEvent, node: int = 0, first: int = 1) -> None:
    with (run_dir / file).open("ab") as opened:
        opened.write(
            b"".join(make_line(event, number, node=node) for number, event in enumerate(events, start=first))
        )


def _keys(store: Store) -> list[str]:
    return [row.key for row in store.runs()]


def test_what_nodes_write_into_a_run_directory_is_in_the_store(
    store: Store, writer: Writer, runs: Path
) -> None:
    """Events of all nodes, rows of all nodes, and who it is."""
    run_dir = _make_run(runs, "one", key="k")
    _write(run_dir, "events.node1.jsonl", *BEGIN[:1], node=1)
    rows = [make_summary(7), make_summary(8, node=1)]
    (run_dir / "summaries.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    row = store.run("k")
    assert row is not None
    assert (row.name, row.command, row.events, row.nodes, row.step) == (
        "one",
        ["train.py", "--fast"],
        len(BEGIN) + 1,
        2,
        8,
    )
    assert [rank.rank for rank in store.ranks("k")] == [0, 1, 2, 3]
    assert folder.place_of("k") == run_dir


def test_what_is_added_later_is_read_from_there(store: Store, writer: Writer, runs: Path) -> None:
    """A line without its end waits for it; a line that is broken is left out."""
    run_dir = _make_run(runs, "one", key="k")
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    line = make_line(RunEnded(exit_code=0, reason="succeeded"), 9)
    log = run_dir / "events.jsonl"
    with log.open("ab", buffering=0) as opened:
        opened.write(b"{broken\n" + line[:20])
        folder.turn(100.0)
        assert len(store.records("k")) == len(BEGIN)
        opened.write(line[20:])
    folder.turn(200.0)
    assert [kept.record.event for kept in store.records("k")][len(BEGIN) :] == [
        RunEnded(exit_code=0, reason="succeeded")
    ]


def test_links_are_not_followed(store: Store, writer: Writer, runs: Path, tmp_path: Path) -> None:
    """Neither those to run directories elsewhere, nor those inside one to files elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outside = _make_run(elsewhere, "secret")
    (runs / "link").symlink_to(outside)
    inside = runs / "inside"
    inside.mkdir()
    (inside / "events.jsonl").symlink_to(outside / "events.jsonl")
    (inside / "summaries.jsonl").symlink_to(outside / "events.jsonl")
    os.mkfifo(inside / "events.node1.jsonl")
    _make_run(runs, "real")
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    folder.turn(100.0)
    assert _keys(store) == ["key of real"]


def test_old_runs_were_heard_when_they_were_written(store: Store, writer: Writer, runs: Path) -> None:
    """The newest is first in the list, whichever was read first."""
    for days in (3, 1, 2):
        _make_run(runs, f"{days} days ago", age_s=days * 86400.0)
    _make_run(runs, "now")
    Folder(runs, writer, _notebook(runs)).turn(0.0)
    names = [row.name for row in store.runs()]
    assert names == ["now", "1 days ago", "2 days ago", "3 days ago"]


def test_runs_older_than_what_is_kept_are_not_read(store: Store, writer: Writer, runs: Path) -> None:
    """The store would forget them at once, and read them again for ever."""
    _make_run(runs, "old", age_s=3 * 86400.0)
    _make_run(runs, "new")
    Folder(runs, writer, _notebook(runs), keep_age_s=2 * 86400.0).turn(0.0)
    assert _keys(store) == ["key of new"]


def test_the_newest_of_very_many_come_first_and_the_idle_are_left_alone(
    store: Store, writer: Writer, runs: Path
) -> None:
    """One turn reads a bounded number; all are read in the end, and then hardly ever looked at."""
    for number in range(40):
        _make_run(runs, f"{number:02}", age_s=3600.0 * (40 - number))
    folder = Folder(runs, writer, _notebook(runs))
    assert folder.turn(0.0) is True
    assert {row.name for row in store.runs()} == {f"{number:02}" for number in range(8, 40)}
    assert folder.turn(0.0) is False
    assert len(store.runs(limit=100)) == 40
    assert folder.turn(50.0) is False
    due = [each for each in folder._followed.values() if each.next_s <= 50.0]
    assert due == []


def test_a_server_that_starts_again_goes_on_where_it_was(
    store: Store, writer: Writer, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the store already is not read again, except for another store."""
    run_dir = _make_run(runs, "one", key="k")
    first = Folder(runs, writer, _notebook(runs))
    first.turn(0.0)
    first.end()
    _write(run_dir, "events.jsonl", RunEnded(exit_code=0, reason="succeeded"), first=9)
    sent: list[int] = []
    put = writer.put

    def count(shipment, **more):  # type: ignore[no-untyped-def]
        sent.append(len(shipment.events))
        return put(shipment, **more)

    monkeypatch.setattr(writer, "put", count)
    Folder(runs, writer, _notebook(runs)).turn(0.0)
    Folder(runs, writer, _notebook(runs, url="another")).turn(0.0)
    Folder(runs, writer, _notebook(runs, is_fresh=True)).turn(0.0)
    assert sent == [1, len(BEGIN) + 1, len(BEGIN) + 1]
    assert len(store.records("k")) == len(BEGIN) + 1


def test_a_run_without_its_info_is_waited_for(store: Store, writer: Writer, runs: Path) -> None:
    """Its key is in there; after a while it is known by its name."""
    run_dir = _make_run(runs, "one", key="k")
    info = run_dir / "run.json"
    kept = info.read_bytes()
    info.unlink()
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    assert _keys(store) == []
    info.write_bytes(kept)
    folder.turn(5.0)
    assert _keys(store) == ["k"]
    other = _make_run(runs, "attached")
    (other / "run.json").unlink()
    folder.turn(10.0)
    folder.turn(30.0)
    assert {row.name for row in store.runs()} == {"one", "attached"}


def test_a_run_directory_that_is_removed_is_forgotten(store: Store, writer: Writer, runs: Path) -> None:
    """What the store has of it stays."""
    run_dir = _make_run(runs, "one", key="k")
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    for file in run_dir.iterdir():
        file.unlink()
    run_dir.rmdir()
    folder.turn(100.0)
    assert folder.place_of("k") is None
    assert _keys(store) == ["k"]


def test_a_run_of_more_nodes_than_may_wait_comes_all_the_same(store: Store, runs: Path) -> None:
    """What waits is written, and then there is room for the next."""
    run_dir = _make_run(runs, "one", key="k")
    for node in range(1, 12):
        _write(run_dir, f"events.node{node}.jsonl", *BEGIN[:1], node=node)
    few = Writer(store, on_taken=lambda shipments: None, counters=ServerCounters(), most_waiting=3)
    few.start()
    Folder(runs, few, _notebook(runs)).turn(0.0)
    few.end()
    row = store.run("k")
    assert row is not None
    assert (row.nodes, row.events) == (12, len(BEGIN) + 11)


@pytest.mark.parametrize("most", [1, 100])
def test_a_server_that_ends_does_not_wait_for_what_is_not_written(
    store: Store, runs: Path, most: int
) -> None:
    """Of a writer that does nothing any more nobody would ever get an answer."""
    run_dir = _make_run(runs, "one", key="k")
    _write(run_dir, "events.node1.jsonl", *BEGIN[:1], node=1)
    idle = Writer(store, on_taken=lambda shipments: None, counters=ServerCounters(), most_waiting=most)
    folder = Folder(runs, idle, _notebook(runs))
    folder.start()
    wait_until(lambda: idle._waiting, "something that waits")
    folder.end()
    assert _notebook(runs).places("one") == {}


def test_only_so_much_is_read_at_a_time(
    store: Store, writer: Writer, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the number of logs, and the writer knows how much it has in hand."""
    for number in range(4):
        run_dir = _make_run(runs, f"run {number}", age_s=3600.0 * number)
        for node in (1, 2):
            _write(run_dir, f"events.node{node}.jsonl", *BEGIN, node=node)
    line_bytes = len(make_line(BEGIN[0], 1))
    monkeypatch.setattr(following, "_MOST_AT_ONCE_BYTES", 16 * line_bytes)
    monkeypatch.setattr(following, "MOST_BYTES", 6 * line_bytes)
    sizes: list[int] = []
    put = writer.put

    def measure(shipment, **more):  # type: ignore[no-untyped-def]
        sizes.append(more["size"])
        return put(shipment, **more)

    monkeypatch.setattr(writer, "put", measure)
    folder = Folder(runs, writer, _notebook(runs))
    assert folder.turn(0.0) is True
    assert 0 < sum(sizes) < 20 * line_bytes
    turns = 1
    while folder.turn(0.0):
        turns += 1
    assert turns > 2
    assert [row.events for row in store.runs()] == [3 * len(BEGIN)] * 4
    files = [file for name in runs.iterdir() for file in name.glob("*.jsonl")]
    assert sum(sizes) == sum(len(line) for file in files for line in file.read_bytes().split(b"\n"))


def test_a_run_that_is_started_again_in_the_same_place_is_another(
    store: Store, writer: Writer, runs: Path
) -> None:
    """What the first one left unread is still its own; what comes after belongs to the second."""
    run_dir = _make_run(runs, "one", key="first")
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    _write(run_dir, "events.jsonl", RunEnded(exit_code=1, reason="failed"), first=9)
    (run_dir / "summaries.jsonl").write_bytes(msgspec.json.encode(make_summary(7)) + b"\n")
    _write_info(run_dir, "second", started_at=datetime.now(UTC).isoformat())
    _write(run_dir, "events.jsonl", *BEGIN, first=20)
    folder.turn(100.0)
    ids = {key: [each.record.stamp.event_id for each in store.records(key)] for key in ("first", "second")}
    assert ids == {"first": ["0-1", "0-2", "0-3", "0-4", "0-9"], "second": ["0-20", "0-21", "0-22", "0-23"]}
    steps = {row.key: row.step for row in store.runs()}
    assert steps == {"first": 7, "second": 0}
    assert (folder.place_of("first"), folder.place_of("second")) == (None, run_dir)


def test_what_is_read_while_a_run_is_started_again_is_not_filed_under_the_old_one(
    store: Store, writer: Writer, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once more, when it is known whose it is."""
    run_dir = _make_run(runs, "one", key="first")
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)

    def start_again(*place, **more):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(following, "read_news", read_news)
        _write_info(run_dir, "second", started_at=datetime.now(UTC).isoformat())
        _write(run_dir, "events.jsonl", *BEGIN, first=20)
        return read_news(*place, **more)

    monkeypatch.setattr(following, "read_news", start_again)
    folder.turn(100.0)
    folder.turn(100.0)
    assert {row.key: row.events for row in store.runs()} == {"first": len(BEGIN), "second": len(BEGIN)}


def test_a_copy_of_a_run_directory_does_not_take_its_place(store: Store, writer: Writer, runs: Path) -> None:
    """Orders go to the one that was there first; when that is gone, the other one is all there is."""
    run_dir = _make_run(runs, "one", key="k")
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    copy = runs / "copy"
    shutil.copytree(run_dir, copy)
    folder.turn(100.0)
    assert folder.place_of("k") == run_dir
    shutil.rmtree(copy)
    folder.turn(200.0)
    assert folder.place_of("k") == run_dir
    shutil.copytree(run_dir, copy)
    folder.turn(300.0)
    shutil.rmtree(run_dir)
    folder.turn(400.0)
    assert folder.place_of("k") == copy


@pytest.mark.parametrize("kind", ["link", "pipe", "broken", "long"])
def test_a_run_whose_info_cannot_be_read_is_known_by_its_name(
    store: Store, writer: Writer, runs: Path, tmp_path: Path, kind: str
) -> None:
    """Nobody waits for a pipe, or reads what a link leads to; what comes later is read all the same."""
    run_dir = _make_run(runs, "one", key="k")
    info = run_dir / "run.json"
    elsewhere = tmp_path / "elsewhere.json"
    info.rename(elsewhere)
    match kind:
        case "link":
            info.symlink_to(elsewhere)
        case "pipe":
            os.mkfifo(info)
        case "broken":
            info.write_text("{")
        case "long":
            info.write_bytes(b" " * (2 << 20) + elsewhere.read_bytes())
    folder = Folder(runs, writer, _notebook(runs))
    folder.turn(0.0)
    folder.turn(30.0)
    _write(run_dir, "events.jsonl", RunEnded(exit_code=0, reason="succeeded"), first=9)
    folder.turn(100.0)
    [row] = store.runs()
    assert (row.key != "k", row.name, row.command, row.events) == (True, "one", [], len(BEGIN) + 1)
