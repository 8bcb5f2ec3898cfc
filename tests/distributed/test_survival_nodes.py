"""Jobs that survive deaths, on two nodes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from runs import Run, free_port, running, wait_until
from survivals import Scene

from holdfast.values import AttemptEnded, AttemptStarted, Regrouped

pytestmark = [pytest.mark.processes, pytest.mark.alone]


def _flags(scene: Scene, node: int, port: str, *, backend: str) -> tuple[str, ...]:
    where = ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", port]
    if backend != "static":
        # Nodes are numbered by the order of their addresses; the first to come hosts the rendezvous.
        names = ("127.0.0.1", "localhost") if backend == "c10d" else ("localhost", "127.0.0.1")
        where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "j"]
        where += ["--local-addr", names[node]]
    return scene.flags(2, "--nnodes", "2", *where)


def _is_taken(port: str) -> bool:
    listeners = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return port in [str(listener.laddr[1]) for listener in listeners if listener.laddr]


@contextlib.contextmanager
def _two_nodes(tmp_path: Path, scene: Scene, *, backend: str = "static", **env: str) -> Iterator[list[Run]]:
    """Two launchers, the one of node 0 first."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        runs = []
        for node in range(2):
            folder = tmp_path / f"node{node}"
            folder.mkdir()
            flags = _flags(scene, node, port, backend=backend)
            runs.append(stack.enter_context(running(folder, *flags, **scene.env(**env))))
            wait_until(lambda: _is_taken(port), 60)
        scene.wait_for([0, 1, 2, 3], generation=0)
        yield sorted(runs, key=lambda run: not (run.run_dir / "events.jsonl").exists())


def _attempts(run: Run) -> int:
    return sum(isinstance(record.event, AttemptStarted) for record in run.events().records)


@pytest.mark.parametrize("backend", ["static", "c10d", "c10d hosted by node 1"])
def test_a_job_survives_the_death_of_a_launcher_with_all_its_workers(tmp_path: Path, backend: str) -> None:
    """The workers of node 0 go on by themselves, are not restarted, and the run ends with 0."""
    scene = Scene(tmp_path)
    with _two_nodes(tmp_path, scene, backend=backend) as (first, second):
        second.process.kill()
        scene.wait_for([0, 1], generation=1)
        time.sleep(3)  # Torch's agent asks the rendezvous once a second, whose host may be gone.
        scene.finish()
        assert first.finish() == 0
        wait_until(lambda: second.left_behind() == [], 10)
    assert "holdfast: 2 of 4 workers go on from step 0" in first.stderr.splitlines()
    regroups = [record.event for record in first.events().records if isinstance(record.event, Regrouped)]
    assert regroups[-1].members == [0, 1]
    assert sorted(regroups[-1].dead) == [2, 3]
    assert _attempts(first) == 1
    assert "Traceback" not in first.output


def test_node_0_stays_for_the_others_when_its_own_workers_are_dead(tmp_path: Path) -> None:
    """Its launcher hosts store and hub; both runs end with 0."""
    scene = Scene(tmp_path)
    with _two_nodes(tmp_path, scene) as (first, second):
        for pid in first.worker_pids():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _have_regrouped([2, 3], first), 60)
        os.kill(second.worker_pids()[0], signal.SIGKILL)
        wait_until(lambda: _have_regrouped([3], first), 60)
        scene.finish()
        assert (first.finish(), second.finish()) == (0, 0)
    assert first.stderr.count("died: SIGKILL; the others go on") == 2
    assert second.stderr.count("holdfast: rank 2 died: SIGKILL; the others go on") == 1
    assert "holdfast: 1 of 4 workers go on from step 0" in first.stderr.splitlines()


def _have_regrouped(members: list[int], run: Run) -> bool:
    """Say whether these members went on by themselves."""
    regroups = [record.event for record in run.events().records if isinstance(record.event, Regrouped)]
    return members in [regroup.members for regroup in regroups]


def test_a_node_without_workers_leaves_the_others_alone(tmp_path: Path) -> None:
    """Its launcher ends with 0 while they go on, and so do they."""
    scene = Scene(tmp_path)
    with _two_nodes(tmp_path, scene) as (first, second):
        for pid in second.worker_pids():
            os.kill(pid, signal.SIGKILL)
        assert second.finish() == 0
        scene.wait_for([0, 1], generation=1)
        assert first.process.poll() is None
        scene.finish()
        assert first.finish() == 0


def test_when_the_job_cannot_go_on_every_node_fails(tmp_path: Path) -> None:
    """Ranks 1 and 3 are all of stage 1; both launchers end with the code of the first to die."""
    scene = Scene(tmp_path)
    with _two_nodes(tmp_path, scene, PP="2") as (first, second):
        os.kill(second.worker_pids()[1], signal.SIGKILL)
        wait_until(lambda: _have_regrouped([0, 1, 2], first), 60)
        os.kill(first.worker_pids()[1], signal.SIGKILL)
        assert first.finish() != 0
        assert second.finish() != 0
    assert first.stderr.count("training cannot go on: every worker of stage 1 is gone") == 1
    for run in (first, second):
        ends = [record.event for record in run.events().records if isinstance(record.event, AttemptEnded)]
        assert [end.reason for end in ends] == ["failed"]
