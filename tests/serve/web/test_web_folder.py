"""A folder of run directories that is followed: real files, as launchers and guards leave them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.store import Store
from holdfast.serve.web.folder import Folder
from holdfast.serve.web.notebook import Notebook
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
    (run_dir / "run.json").write_bytes(msgspec.json.encode(_INFO | {"key": key or f"key of {name}"}))
    _write(run_dir, "events.jsonl", *BEGIN)
    then_s = time.time() - age_s
    os.utime(run_dir / "events.jsonl", (then_s, then_s))
    return run_dir


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
