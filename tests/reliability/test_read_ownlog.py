"""Holdfast's own event logs as attempts of jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from holdfast.errors import InputError
from holdfast.reliability.ownlog import read_own_logs
from holdfast.reliability.tables import ATTEMPTS


def line(second: int, name: str, *, attempt: int = 0, node: int = 0, **fields: Any) -> str:
    """One line of a log, written that many seconds after midnight."""
    at = f"2026-11-15T00:{second // 60:02}:{second % 60:02}.500000+00:00"
    stamp = {"schema": 1, "event_id": f"{node}-{second}-{name}", "at": at, "host": f"h{node}", "node": node}
    return json.dumps(stamp | {"attempt": attempt, "name": name} | fields) + "\n"


def started(second: int, **options: Any) -> str:
    """The start of an attempt of eight ranks on two nodes."""
    return line(second, "attempt_started", world_size=8, nodes=2, ranks=[0], pids=[1], **options)


def at(second: int) -> datetime:
    """A time of a log."""
    return datetime(2026, 11, 15, 0, second // 60, second % 60, 500_000, tzinfo=UTC)


def write(folder: Path, text: str, other: str = "") -> Path:
    """Make a run directory."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text(text)
    if other:
        (folder / "events.node1.jsonl").write_text(other)
    return folder


def test_a_run_has_one_row_per_attempt(tmp_path: Path) -> None:
    """Start and end are by one node's clock; hosts of all nodes are named."""
    run = write(
        tmp_path / "run-a",
        line(0, "run_started", run_id="llm", argv=[], pid=1)
        + started(5)
        + line(60, "attempt_ended", reason="failed", first=None)
        + started(65, attempt=1)
        + line(600, "attempt_ended", attempt=1, reason="succeeded", first=None)
        + line(601, "run_ended", attempt=1, exit_code=0, reason="succeeded"),
        started(7, node=1)
        + line(90, "attempt_ended", node=1, reason="failed", first=None)
        + started(66, node=1, attempt=1),
    )
    reading = read_own_logs(run)
    assert reading.table.schema == pl.Schema(ATTEMPTS)
    names = ("job", "attempt", "name", "state", "submit", "start", "end", "nodes", "gpus", "node_list")
    assert reading.table.select(names).rows() == [
        ("run-a", 1, "llm", "FAILED", at(0), at(5), at(60), 2, 8, "h0,h1"),
        ("run-a", 2, "llm", "COMPLETED", at(0), at(65), at(600), 2, 8, "h0,h1"),
    ]


@pytest.mark.parametrize(
    ("last", "state", "has_end"),
    [
        (line(60, "attempt_ended", reason="signal", first=None), "CANCELLED", True),
        (line(60, "attempt_ended", reason="membership", first=None), "REQUEUED", True),
        (line(60, "launcher_died", pid=1), "FAILED", True),
        (line(60, "run_ended", exit_code=143, reason="stopped by SIGTERM"), "CANCELLED", True),
        (line(60, "run_ended", exit_code=1, reason="error"), "FAILED", True),
        (line(60, "guard_started", pid=1), "RUNNING", False),
    ],
)
def test_an_attempt_ends_as_its_log_does(last: str, state: str, has_end: bool, tmp_path: Path) -> None:
    """One without an end runs."""
    table = read_own_logs(write(tmp_path / "run", started(5) + last)).table
    assert table.select("state", "end").rows() == [(state, at(60) if has_end else None)]


def test_a_folder_of_runs_is_read_with_what_is_broken_in_them(tmp_path: Path) -> None:
    """Lines that are cut or no JSON are counted and told with their run."""
    write(tmp_path / "b", started(5) + "{broken\n" + '{"schema":1')
    write(tmp_path / "a", started(6))
    (tmp_path / "no-run").mkdir()
    reading = read_own_logs(tmp_path)
    assert reading.table["job"].to_list() == ["a", "b"]
    assert (reading.rows, reading.broken) == (4, 2)
    assert reading.told[0].place == f"{tmp_path}, row 2"
    assert reading.told[0].why.startswith("events.jsonl of b: ")
    assert reading.told[1].why == "b: the last line is cut"


def test_one_log_is_read_and_a_folder_without_one_refused(tmp_path: Path) -> None:
    """A job is named after the folder that its log is in."""
    run = write(tmp_path / "run", started(5))
    assert read_own_logs(run / "events.jsonl").table["job"].to_list() == ["run"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="expected run directories"):
        read_own_logs(tmp_path / "empty")
    with pytest.raises(InputError, match="expected run directories"):
        read_own_logs(tmp_path / "missing")
