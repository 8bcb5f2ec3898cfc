"""Several launchers make one job: two nodes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import TRAIN, Run, free_port, running, wait_until

from holdfast.values import AttemptEnded, AttemptStarted

pytestmark = pytest.mark.processes


def _node(node: int, port: str, *more: str) -> tuple[str, ...]:
    where = ("--master-addr", "127.0.0.1", "--master-port", port)
    return ("--nnodes", "2", "--node-rank", str(node), *where, *more, str(TRAIN))


def _folders(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "node0", tmp_path / "node1"
    first.mkdir()
    second.mkdir()
    return first, second


def test_two_nodes_train_together_and_share_a_run_directory(tmp_path: Path) -> None:
    """Each node writes its own event log into the folder that both were given."""
    port = free_port()
    with running(tmp_path, *_node(0, port)) as first, running(tmp_path, *_node(1, port)) as second:
        assert (first.finish(), second.finish()) == (0, 0)
    assert "[rank 0] rank 0 ends" in first.stdout
    assert "[rank 1] rank 1 ends" in second.stdout
    assert {record.stamp.node for record in first.events().records} == {0, 1}
    assert (first.run_dir / "events.node1.jsonl").exists()


def test_both_nodes_name_the_worker_that_died_on_one_of_them(tmp_path: Path) -> None:
    """Node 0 has only a victim to show, and names rank 1 of node 1 nevertheless."""
    port = free_port()
    folders = _folders(tmp_path)
    fail: dict[str, Any] = {"FAIL": "1@5:raise"}
    with (
        running(folders[0], *_node(0, port), **fail) as first,
        running(folders[1], *_node(1, port), **fail) as second,
    ):
        assert (first.finish(), second.finish()) == (1, 1)
    for run in (first, second):
        assert "rank 1 on host" in run.stderr.splitlines()[-1]
        assert "ValueError: the input is broken" in run.stderr.splitlines()[-1]
        assert run.output.count("Traceback (most recent call last)") == 1


def test_both_nodes_restart_after_a_death_on_one(tmp_path: Path) -> None:
    """The second attempt meets in a new store, on both nodes."""
    port = free_port()
    folders = _folders(tmp_path)
    fail: dict[str, Any] = {"FAIL": "1@5:kill"}
    more = ("--max-restarts", "1")
    with (
        running(folders[0], *_node(0, port, *more), **fail) as first,
        running(folders[1], *_node(1, port, *more), **fail) as second,
    ):
        assert (first.finish(), second.finish()) == (0, 0)
    for run in (first, second):
        events = [record.event for record in run.events().records]
        assert [e.reason for e in events if isinstance(e, AttemptEnded)] == ["failed", "succeeded"]


def test_a_node_may_join_a_job_of_flexible_size(tmp_path: Path) -> None:
    """With --nnodes 1:2 it starts on one node, restarts with two, and both share the run directory."""
    endpoint = f"localhost:{free_port()}"
    where = ("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "j")
    flags = ("--nnodes", "1:2", *where, "--rdzv-conf", "last_call_timeout=1", str(TRAIN))
    # Long enough for another launcher to start on a busy machine.
    slow: dict[str, Any] = {"STEPS": "200", "PAUSE_S": "0.1"}
    with running(tmp_path, *flags, **slow) as first:
        first.wait_for_steps()
        with running(tmp_path, *flags, has_run_dir=False, **slow) as second:
            assert (first.finish(), second.finish()) == (0, 0)
    assert (tmp_path / "run" / "events.node1.jsonl").exists()
    mine = [record.event for record in first.events().records if record.stamp.node == 0]
    sizes = [event.world_size for event in mine if isinstance(event, AttemptStarted)]
    assert sizes == [1, 2]
    assert "restarting" not in first.stderr


def test_nodes_agree_on_a_run_directory_whoever_was_told_one(tmp_path: Path) -> None:
    """Node 1 was told none: it takes node 0's choice instead of waiting for ever."""
    port = free_port()
    shared: dict[str, Any] = {"HOLDFAST_RUN_DIR": str(tmp_path / "told")}
    with (
        running(tmp_path, *_node(0, port), has_run_dir=False, **shared) as first,
        running(tmp_path, *_node(1, port), has_run_dir=False) as second,
    ):
        assert (first.finish(), second.finish()) == (0, 0)
    assert {path.name for path in (tmp_path / "told").glob("events*")} == {
        "events.jsonl",
        "events.node1.jsonl",
    }


def test_a_node_that_loses_its_launcher_does_not_keep_the_other_one_waiting(tmp_path: Path) -> None:
    """After kill -9 of one launcher the workers of the other node fail, and its launcher ends."""
    port = free_port()
    folders = _folders(tmp_path)
    env: dict[str, Any] = {"STEPS": "100000"}
    with (
        running(folders[0], *_node(0, port), **env) as first,
        running(folders[1], *_node(1, port), **env) as second,
    ):
        first.wait_for_steps()
        second.process.kill()
        assert first.finish(60) == 1
        wait_until(lambda: _all_gone(first, second), 10)
    assert "rank 0 on host" in first.stderr.splitlines()[-1]


def _all_gone(*runs: Run) -> bool:
    return not any(run.left_behind() for run in runs)
