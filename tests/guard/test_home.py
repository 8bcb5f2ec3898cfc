"""What a node keeps for its run, opened and closed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from helpers import Ears, wait_until
from holdfast.guard.home import Home, RunPlan, RunSettings
from holdfast.job import place
from holdfast.observe.eventlog import read_run
from holdfast.shipment import Order
from holdfast.values import RunEnded, RunStarted
from shipmentserver import serving


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


@pytest.mark.processes
def test_the_last_word_of_a_run_reaches_its_server(
    tmp_path: Path, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard sends as long as it lives, the launcher the rest; the token is in no command line."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "a-secret-of-some-length")
    with serving() as server:
        home = Home(_plan(tmp_path, server=server.url), ears.say, node=0, chosen="", key="k1")
        try:
            home.supervisor.look()
            guard = psutil.Process(home.supervisor.pid)
            wait_until(lambda: "guard_started" in server.names, "the guard's first event")
            command = guard.cmdline()
        finally:
            home.close(exit_code=0, reason="succeeded")
        assert server.names == ["run_started", "guard_started", "run_ended"]
        assert {(each.run.key, each.run.name, each.run.run_id) for each in server.shipments[-1:]} == {
            ("k1", "run", "abc")
        }
        assert set(server.tokens) == {"Bearer a-secret-of-some-length"}
    assert not any("secret" in word for word in command)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["key"] == "k1"
    sent = sum(len(each.events) for each in server.shipments)
    assert sent == 3, "nothing was sent twice"


@pytest.mark.processes
def test_a_guard_that_is_killed_goes_on_sending_and_obeying(tmp_path: Path, ears: Ears) -> None:
    """The next one knows what was sent, and which orders were carried out."""
    with serving() as server:
        home = Home(_plan(tmp_path, server=server.url), ears.say, node=0, chosen="")
        try:
            home.supervisor.look()
            server.orders = [Order(order_id="1", kind="act", words="S2")]
            wait_until(lambda: "ordered" in server.names, "the order's outcome")
            first = home.supervisor.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: _look(home) and server.names.count("guard_started") == 2, "another guard")
            server.orders.append(Order(order_id="2", kind="set", words="profile=true"))
            wait_until(lambda: server.names.count("ordered") == 2, "the second order's outcome")
        finally:
            home.close(exit_code=0, reason="succeeded")
        assert server.names.count("ordered") == 2


def _look(home: Home) -> bool:
    home.supervisor.look()
    return True


@pytest.mark.parametrize("url", ["example.org", "https://me:secret@example.org", "ftp://x"])
def test_an_impossible_server_is_refused(url: str) -> None:
    """Before anything is started, and without repeating a password."""
    with pytest.raises(ValueError, match=r"^server (is|has)") as caught:
        RunSettings(server=url)
    assert "secret" not in str(caught.value)


def test_runs_have_keys_of_their_own(tmp_path: Path, ears: Ears) -> None:
    """Where node 0 has not said another."""
    keys = set()
    for name in ("a", "b"):
        home = Home(_plan(tmp_path / name), ears.say, node=0, chosen="")
        home.drop()
        keys.add(json.loads((tmp_path / name / "run" / "run.json").read_text())["key"])
    assert len(keys) == 2
    assert all(len(key) == 32 for key in keys)
