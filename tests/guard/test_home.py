"""What a node keeps for its run, opened and closed."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from helpers import Ears, wait_until
from holdfast.guard.home import Home, RunPlan, RunSettings
from holdfast.job import place
from holdfast.observe.eventlog import read_run
from holdfast.values import RunEnded, RunStarted


def _plan(folder: Path, **fields: object) -> RunPlan:
    settings = RunSettings(**({"run_dir": str(folder / "run")} | fields))  # type: ignore[arg-type]
    return RunPlan(run_id="abc", argv=["train.py"], settings=settings, effective={}, launch={})


def test_a_run_begins_and_ends_in_its_log(tmp_path: Path, ears: Ears) -> None:
    """The folder that was named is used, the rings are gone at the end."""
    home = Home(_plan(tmp_path), ears.say, node=0, chosen="elsewhere")
    assert home.rings.is_dir()
    home.close(exit_code=3, reason="failed")
    assert [record.event for record in read_run(tmp_path / "run").records] == [
        RunStarted(run_id="abc", argv=["train.py"], pid=os.getpid()),
        RunEnded(exit_code=3, reason="failed"),
    ]
    assert not home.rings.exists()
    assert (tmp_path / "run" / "run.json").exists()


def test_where_nobody_named_a_folder_node_0s_choice_holds(tmp_path: Path, ears: Ears) -> None:
    """Another node goes where node 0 went, and writes a log of its own but no run.json."""
    plan = _plan(tmp_path, run_dir=None)
    home = Home(plan, ears.say, node=1, chosen=str(tmp_path / "node 0 said so"))
    home.drop()
    assert [path.name for path in (tmp_path / "node 0 said so").iterdir()] == ["events.node1.jsonl"]


def test_memory_without_room_for_rings_does_not_stop_training(
    tmp_path: Path, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/shm may be full, or its folder of our name somebody else's; training goes on unwatched."""
    (tmp_path / f"holdfast-{os.getuid()}").write_text("a file where the folder should be")
    monkeypatch.setattr(place, "Path", lambda *parts: tmp_path if parts == ("/dev/shm",) else Path(*parts))
    Home(_plan(tmp_path), ears.say, node=0, chosen="elsewhere").drop()
    assert len(ears.lines()) >= 1


@pytest.mark.parametrize("grace_s", [-1.0, 3601.0, float("nan")])
def test_an_impossible_grace_is_refused(grace_s: float) -> None:
    """Up to an hour."""
    with pytest.raises(ValueError, match=r"stop_grace_s is .*, expected 0 to 3600"):
        RunSettings(stop_grace_s=grace_s)


@pytest.mark.processes
@pytest.mark.parametrize("kill_hung", [True, False])
def test_the_guard_is_told_whether_it_may_kill(tmp_path: Path, ears: Ears, kill_hung: bool) -> None:
    """By a flag, which it keeps when it is started again."""
    home = Home(_plan(tmp_path, kill_hung=kill_hung), ears.say, node=0, chosen="")
    try:
        home.supervisor.look()
        guard = psutil.Process(home.supervisor.pid)
        wait_until(lambda: "--parent" in guard.cmdline(), "the guard's command")
        command = guard.cmdline()
    finally:
        home.drop()
    assert ("--no-kill-hung" in command) is not kill_hung
