"""A folder of runs in which somebody else can write: what a server reads there, and what it must not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from attackparts import BEGIN, JSON, TOKEN, Attacked, attacked, make_line
from helpers import wait_until
from holdfast.errors import InputError
from holdfast.observe.tail import Place, read_on
from holdfast.serve.web.server import make_state
from holdfast.values import RunStarted

pytestmark = pytest.mark.processes

SECRET = "what-is-outside"
_INFO = {
    "schema": 1,
    "run_id": "x",
    "argv": ["train.py"],
    "started_at": "2026-11-17T10:00:00+00:00",
    "host": "a",
    "launcher_pid": 1,
    "rings": "",
    "settings": {},
    "launch": {"command": ["train.py"]},
    "versions": {},
}
_ODD = [
    b"not \xff characters",
    b"<img src=x onerror=alert(1)>",
    b"..hidden..",
    "\u202e right to left".encode(),
    b"a\nb\x1b[31m",
    b"%2e%2e%2fetc",
    b"x" * 250,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A server that follows a folder with everything in it that should not be."""
    base = tmp_path_factory.mktemp("files")
    runs, outside = base / "runs", base / "outside"
    runs.mkdir()
    _make_run(outside / SECRET, SECRET)
    _make_run(runs / "good", "good")
    _lay_traps(runs, outside)
    for name in _ODD:
        _make_run(runs / os.fsdecode(name), "")
    with attacked(base) as server:
        yield server


def _make_run(run_dir: Path, key: str) -> Path:
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_bytes(msgspec.json.encode(_INFO | {"key": key, "host": key}))
    events = [RunStarted(run_id="x", argv=[key], pid=7), *BEGIN[1:]]
    (run_dir / "events.jsonl").write_bytes(
        b"".join(make_line(event, number) + b"\n" for number, event in enumerate(events))
    )
    return run_dir


def _lay_traps(runs: Path, outside: Path) -> None:
    (runs / "link").symlink_to(outside / SECRET)
    linked = _make_run(runs / "linked info", "linked")
    for name in ("run.json", "events.jsonl"):
        (linked / name).unlink()
        (linked / name).symlink_to(outside / SECRET / name)
    makers: dict[str, Callable[[Path], object]] = {
        "endless info": lambda file: file.symlink_to("/dev/zero"),
        "piped info": os.mkfifo,
        "folder for info": Path.mkdir,
        "deep info": lambda file: file.write_bytes(b"[" * 500_000),
        "key that leads away": lambda file: file.write_bytes(msgspec.json.encode(_INFO | {"key": "../k"})),
    }
    for name, make in makers.items():
        info = _make_run(runs / name, "") / "run.json"
        info.unlink()
        make(info)
        _age(info.parent)
    os.mkfifo(_make_run(runs / "piped log", "piped") / "events.node1.jsonl")
    with (_make_run(runs / "holes", "holes") / "events.node2.jsonl").open("wb") as opened:
        opened.truncate(1 << 40)


def _age(run_dir: Path) -> None:
    """Make the server believe that nobody will write the run's info any more."""
    then_s = time.time() - 3600
    os.utime(run_dir / "events.jsonl", (then_s, then_s))


def test_nothing_outside_is_read_and_nothing_inside_keeps_others_waiting(folder: Attacked) -> None:
    """Links, pipes, endless files, and names of any bytes: all real runs are there, and only those."""
    expected = 1 + 5 + 1 + 1 + sum(not name.startswith(b".") for name in _ODD)
    with folder.client() as client:

        def names() -> list[str]:
            return [line["run"]["name"] for line in client.get("/api/v1/runs").json()["runs"]]

        wait_until(lambda: len(names()) >= expected, f"{expected} runs")
        assert len(names()) == expected
        assert SECRET not in client.get("/api/v1/runs").text
        page = client.get("/", headers={"Accept": "text/html"}).text
        assert "<img src=x" not in page
        assert "\u202e" not in page
        for line in client.get("/api/v1/runs").json()["runs"]:
            assert client.get(f"/api/v1/runs/{line['run']['key']}").status_code == 200
    assert folder.memory_bytes() < 600 << 20
    assert folder.is_well(), folder.said()


def test_a_run_that_comes_later_is_still_seen(folder: Attacked) -> None:
    """Whoever reads the folder has not got stuck in it."""
    _make_run(folder.runs / "later", "later")
    with folder.client() as client:
        wait_until(lambda: client.get("/api/v1/runs/later").status_code == 200, "the run that came later")


def test_an_order_is_not_written_through_a_link(folder: Attacked) -> None:
    """A job that makes its folder of orders a link cannot have the server write elsewhere."""
    elsewhere = folder.folder / "elsewhere"
    elsewhere.mkdir()
    (folder.runs / "good" / "orders").symlink_to(elsewhere)
    with folder.client() as client:
        wait_until(lambda: client.get("/api/v1/runs/good").status_code == 200, "the run")
        answer = client.post("/api/v1/runs/good/orders", json={"kind": "profile"}, headers=JSON)
        assert (answer.status_code, "is a link" in answer.text) == (409, True)
        assert client.get("/api/v1/runs/good/orders").json() == {"orders": []}
    assert list(elsewhere.iterdir()) == []


def test_what_the_server_keeps_for_itself_is_nobody_elses(folder: Attacked) -> None:
    """The folder with store and token is closed to others, and no page leads to it."""
    assert (folder.runs / ".holdfast").stat().st_mode & 0o077 == 0
    assert TOKEN not in folder.said()


def test_a_folder_that_others_can_write_is_not_used_for_the_store(tmp_path: Path) -> None:
    """Who could exchange the store could give orders."""
    state = make_state(tmp_path)
    assert make_state(tmp_path) == state
    state.chmod(0o777)
    with pytest.raises(InputError, match="others own it, or can write there"):
        make_state(tmp_path)


def test_a_file_of_holes_is_passed_in_bounded_turns(tmp_path: Path) -> None:
    """A line without an end costs no more than a bounded part of it at a time; what follows is read."""
    file = tmp_path / "log"
    with file.open("wb") as opened:
        opened.write(b"first\n")
        opened.truncate(200 << 20)
        opened.seek(0, os.SEEK_END)
        opened.write(b"\nlast\n")
    place, found, turns, is_all = Place(), [], 0, False
    while not is_all:
        piece = read_on(file, place, most_lines=10, most_bytes=1 << 20, longest=1 << 20)
        assert piece.place.offset - place.offset <= 70 << 20
        place, is_all, turns = piece.place, piece.is_all, turns + 1
        found += [line.data for line in piece.lines]
    assert (found[0], found[-1]) == (b"first", b"last")
    assert 3 <= turns <= 6


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    """Not what could not be made inside it."""
    file = tmp_path / "runs"
    file.write_bytes(b"")
    with pytest.raises(InputError, match=r"runs: is a file, expected a folder of run directories"):
        make_state(file)
    assert file.read_bytes() == b""
