"""``srun holdfast run`` on a real Slurm cluster of two nodes, both of them this machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from runs import TRAIN, wait_until

from holdfast.guard.rundir import RunInfo
from holdfast.observe.eventlog import read_run
from holdfast.values import AttemptStarted, RunEnded
from lab.needs import need
from services.slurm import ACCOUNTING_PROGRAMS, PROGRAMS, SlurmCluster, pids_with

pytestmark = [pytest.mark.processes, pytest.mark.alone, pytest.mark.root]

ONE_EACH = ("-N2", "--ntasks-per-node=1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Two nodes for all tests of this file."""
    need("root", *PROGRAMS)
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2) as cluster:
        yield cluster


def _srun(folder: Path, *flags: str) -> list[str]:
    """Return the command line: no flag says who the nodes are or where they meet."""
    launcher = [sys.executable, "-m", "holdfast.cli", "run", "--run-dir", str(folder / "run")]
    return ["srun", *flags, *launcher, "--nproc-per-node", "1", str(TRAIN)]


def _run(cluster: SlurmCluster, folder: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(_srun(folder, *flags), cwd=folder, env={"HOLDFAST_TEST_MARK": str(folder)} | env)


def _left_behind(folder: Path) -> list[int]:
    return pids_with("HOLDFAST_TEST_MARK", str(folder))


def test_two_nodes_find_each_other_from_slurms_variables_alone(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Both ranks finish, each node leaves its event log, and the run is named after job and step."""
    done = _run(cluster, tmp_path, *ONE_EACH)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"^\[rank (\d)\] rank \d ends with loss", done.stdout, re.MULTILINE)) == [
        "0",
        "1",
    ]
    content = read_run(tmp_path / "run")
    assert (content.cut, content.broken) == (0, [])
    attempts = [r.event for r in content.records if isinstance(r.event, AttemptStarted)]
    assert sorted((a.nodes, a.world_size, a.ranks) for a in attempts) == [(2, 2, [0]), (2, 2, [1])]
    ends = [(r.stamp.node, r.event.exit_code) for r in content.records if isinstance(r.event, RunEnded)]
    assert sorted(ends) == [(0, 0), (1, 0)]
    assert _run_id(tmp_path / "run") == f"slurm-{_newest_job(cluster)}-0"
    wait_until(lambda: _left_behind(tmp_path) == [], 10)


def test_two_launchers_per_node_are_refused_in_one_line(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Every launcher says what it expects instead, and none starts a worker."""
    done = _run(cluster, tmp_path, "-N2", "-n4")
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
    assert len(said) == 4
    for line in said:
        assert line.startswith("holdfast: srun started 4 launchers on 2 nodes, expected one per node: use ")
        assert line.endswith("--ntasks-per-node=1")
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_srun_fails_and_names_the_rank_that_failed_on_one_node(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Both launchers name rank 1 as the first to die and show its error, never that of its victim."""
    done = _run(cluster, tmp_path, *ONE_EACH, FAIL="1@5:raise")
    assert done.returncode == 1
    named = re.findall(r"^holdfast: rank (\d) on host \S+ died first: (.*)", done.stderr, re.MULTILINE)
    assert named == [("1", "ValueError: the input is broken (exit code 1)")] * 2
    assert "Connection closed by peer" not in done.stdout + done.stderr
    wait_until(lambda: _left_behind(tmp_path) == [], 10)


def test_a_cancelled_job_ends_in_order_on_both_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    """All processes get the signal at once; both logs are closed long before Slurm uses force (30 s)."""
    with _started(cluster, tmp_path, STEPS="100000") as srun:
        assert cluster.run(["scancel", _newest_job(cluster)]).returncode == 0
        wait_until(lambda: _left_behind(tmp_path) == [], 10)
        srun.communicate(timeout=10)
        assert srun.returncode != 0
    ends = [r.event for r in read_run(tmp_path / "run").records if isinstance(r.event, RunEnded)]
    assert ends == [RunEnded(exit_code=143, reason="stopped by SIGTERM")] * 2


def test_nothing_is_left_when_srun_is_terminated(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Here Slurm uses force at once: no launcher has a say, and no worker or guard survives it."""
    with _started(cluster, tmp_path, STEPS="100000") as srun:
        srun.terminate()
        wait_until(lambda: _left_behind(tmp_path) == [], 10)
        srun.communicate(timeout=10)
        assert srun.returncode != 0


@contextlib.contextmanager
def _started(cluster: SlurmCluster, folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A step that trains on both nodes, and is gone at the end of the block."""
    command = _srun(folder, *ONE_EACH)
    with cluster.start(command, cwd=folder, env={"HOLDFAST_TEST_MARK": str(folder)} | env) as srun:
        try:
            wait_until(lambda: _is_training(folder / "run"), 40)
            yield srun
        finally:
            for pid in _left_behind(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _is_training(run_dir: Path) -> bool:
    logs = [run_dir / "events.jsonl", run_dir / "events.node1.jsonl"]
    return all(log.exists() and "step_seen" in log.read_text() for log in logs)


def _run_id(run_dir: Path) -> str:
    return msgspec.json.decode((run_dir / "run.json").read_bytes(), type=RunInfo).run_id


def _newest_job(cluster: SlurmCluster) -> str:
    done = cluster.run(["squeue", "--noheader", "--states=all", "--format=%i"])
    return max(done.stdout.split(), key=int)


def test_accounting_knows_a_job_that_ended(tmp_path: Path) -> None:
    """A cluster with accounting answers ``sacct`` with state and exit code."""
    need("root", *PROGRAMS, *ACCOUNTING_PROGRAMS)
    with SlurmCluster(tmp_path / "cluster", nodes=1, accounting=True) as cluster:
        assert cluster.run(["srun", "-N1", "false"]).returncode == 1
        rows = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode,NodeList"]
        wait_until(lambda: cluster.run(rows).stdout == "FAILED|1:0|127.0.0.1\n", 30)


def test_a_killed_test_leaves_no_cluster(tmp_path: Path) -> None:
    """After kill -9 of the process that started it, daemons and job steps are gone."""
    need("root", *PROGRAMS)
    folder = tmp_path / "cluster"
    script = (
        "import sys, pathlib; from services.slurm import SlurmCluster\n"
        f"with SlurmCluster(pathlib.Path({str(folder)!r})) as cluster:\n"
        "    cluster.start(['srun', '-N2', 'sh', '-c', 'echo up; sleep 1000']).stdout.readline()\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(pids_with("SLURM_CONF", str(folder / "slurm.conf"))) >= 9
        process.kill()
    wait_until(lambda: pids_with("SLURM_CONF", str(folder / "slurm.conf")) == [], 10)


def test_node_is_drained_with_the_reason(cluster: SlurmCluster, tmp_path: Path) -> None:
    """A slow node that leaves its job gets no other, and ``sinfo -R`` says why."""
    code = "from holdfast.guard.leaving import drain; print(drain('holdfast: rank 3 too slow'))"
    done = cluster.run(["srun", "-N1", sys.executable, "-c", code], cwd=tmp_path)
    node, _, rest = done.stdout.strip().partition(" ")
    assert rest == "is drained", done.stderr
    shown = cluster.run(["scontrol", "show", "node", node], cwd=tmp_path).stdout
    assert "DRAIN" in shown
    assert "Reason=holdfast: rank 3 too slow" in shown
    cluster.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], cwd=tmp_path)
