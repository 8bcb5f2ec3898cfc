"""The run directory: where things lie, and that its absence stops nobody."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from helpers import Ears
from holdfast.guard.rundir import RunDir, RunInfo, default_path, make_info
from holdfast.settings import Effective

NOW = datetime(2026, 11, 15, 20, 40, 12, tzinfo=timezone(timedelta(hours=1)))


def _info(**fields: object) -> RunInfo:
    info = make_info(
        run_id="abc",
        argv=["train.py"],
        rings=Path("/rings"),
        settings={"stop_grace_s": Effective(value=5.0, origin="default")},
        launch={"nproc_per_node": 2},
    )
    return msgspec.structs.replace(info, **fields)


def test_files_lie_where_the_docstring_says(tmp_path: Path, ears: Ears) -> None:
    """Logs and errors by attempt and rank."""
    run = RunDir(tmp_path / "a" / "b", ears.say)
    assert run.path.is_dir()
    assert run.log(0, 3) == run.path / "logs" / "attempt_0" / "rank_3.log"
    assert run.error(1, 2) == run.path / "errors" / "attempt_1" / "rank_2.json"
    assert ears.lines() == []


def test_the_info_comes_back(tmp_path: Path, ears: Ears) -> None:
    """``run.json`` decodes to what was written, and no other file is left."""
    RunDir(tmp_path, ears.say).write_info(_info())
    again = msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=RunInfo)
    assert again == _info(started_at=again.started_at)
    assert list(again.versions) == ["holdfast", "python", "torch", "kernel"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path: Path, ears: Ears) -> None:
    """Making it and writing into it are one topic."""
    (tmp_path / "file").write_text("")
    run = RunDir(tmp_path / "file" / "run", ears.say)
    run.write_info(_info())
    said = ears.lines()
    assert len(said) == 1
    assert f"{run.path}: Not a directory; training goes on" in said[0]


def test_a_full_disk_is_said(small_disk: Path, ears: Ears) -> None:
    """No half of a run.json is left under its name."""
    RunDir(small_disk, ears.say).write_info(_info(argv=["x" * 20_000]))
    assert len(ears.lines()) == 1
    assert "No space left on device; training goes on" in ears.lines()[0]
    assert not (small_disk / "run.json").exists()


def test_an_argument_that_is_no_unicode_does_not_stop_the_launcher(tmp_path: Path, ears: Ears) -> None:
    """File names may hold any byte."""
    RunDir(tmp_path, ears.say).write_info(_info(argv=["train.py", "\udcff"]))
    info = msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=RunInfo)
    assert (info.argv, ears.lines()) == (["train.py", "?"], [])


def test_names_are_sorted_by_time_in_utc() -> None:
    """Whatever the zone of the clock that was given."""
    path = default_path(Path("runs"), "my run/1", NOW)
    assert re.fullmatch(r"runs/20261115-194012-my_run_1-[0-9a-f]{4}", str(path))
    assert path != default_path(Path("runs"), "my run/1", NOW)
    later = default_path(Path("runs"), "0", NOW.astimezone(UTC) + timedelta(seconds=1))
    assert default_path(Path("runs"), "z", NOW) < later


@pytest.mark.parametrize("run_id", ["a/b", "../x", "/etc"])
def test_any_run_id_gives_one_folder_below_runs(run_id: str) -> None:
    """``--rdzv-id team/job`` is a name, not a path."""
    assert default_path(Path("runs"), run_id, NOW).parent == Path("runs")
