"""``holdfast reliability`` on a real Slurm cluster with accounting, whose four nodes are all this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from runs import wait_until

from holdfast.reliability.sources import read_any
from lab.needs import need
from services.slurm import ACCOUNTING_PROGRAMS, PROGRAMS, SlurmCluster

pytestmark = [pytest.mark.processes, pytest.mark.alone, pytest.mark.root]

HOLDFAST = (sys.executable, "-m", "holdfast.cli", "reliability")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Four nodes, and books."""
    need("root", *PROGRAMS, *ACCOUNTING_PROGRAMS)
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=4, accounting=True) as cluster:
        yield cluster


def _submit(cluster: SlurmCluster, *flags: str) -> str:
    done = cluster.run(["sbatch", "--parsable", "--output=/dev/null", *flags])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _states(cluster: SlurmCluster, job: str) -> list[str]:
    """Return what the books say of a job's attempts."""
    done = cluster.run(["sacct", "-D", "-X", "-n", "-P", "-j", job, "--format=State"])
    return done.stdout.split()


def test_a_node_that_goes_down_shows_with_the_requeue_in_what_is_collected(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """The job's first attempt is NODE_FAIL, its second COMPLETED under the same id; the node has an event."""
    failing = _submit(cluster, "-N1", "--wrap", "exit 3")
    wait_until(lambda: _states(cluster, failing) == ["FAILED"], 60)
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.2; done"
    job = _submit(cluster, "-N2", "--requeue", "--job-name=a|b", "--wrap", wait)
    excluding = _submit(cluster, "-N1", "--exclude=127.0.0.4", "--wrap", "sleep 300")
    wait_until(lambda: "R" in cluster.run(["squeue", "-h", "-j", job, "-o", "%t"]).stdout, 30)
    victim = cluster.run(["squeue", "-h", "-j", job, "-o", "%N"]).stdout.strip()
    first = cluster.run(["scontrol", "show", "hostnames", victim]).stdout.split()[0]
    down = ["scontrol", "update", f"NodeName={first}", "State=DOWN", "Reason=pulled the plug"]
    assert cluster.run(down).returncode == 0
    wait_until(lambda: "PD" in cluster.run(["squeue", "-h", "-j", job, "-o", "%t"]).stdout, 30)
    go.touch()
    # Slurm would let it wait for two minutes.
    assert cluster.run(["scontrol", "update", f"JobId={job}", "StartTime=now"]).returncode == 0
    wait_until(lambda: _states(cluster, job) == ["NODE_FAIL", "COMPLETED"], 60)

    done = cluster.run([*HOLDFAST, "collect", "--days", "1", "--out", str(tmp_path / "books"), "--json"])
    assert done.returncode == 0, done.stderr
    books = [Path(file) for file in msgspec.json.decode(done.stdout)["files"]]
    which, attempts = read_any(books[0])
    assert which == "attempts"
    assert attempts.broken == 0
    mine = attempts.table.filter(attempts.table["job"] == job).sort("attempt")
    assert mine["state"].to_list() == ["NODE_FAIL", "COMPLETED"]
    assert mine["attempt"].to_list() == [1, 2]
    assert mine["name"].to_list() == ["a|b", "a|b"]
    assert mine["nodes"].to_list() == [2, 2]

    assert attempts.table.filter(attempts.table["job"] == failing)["state"].to_list() == ["FAILED"]

    which, events = read_any(books[1])
    assert which == "events"
    assert (first, "DOWN") in events.table.select("node", "name").rows()

    which, exclusions = read_any(books[2])
    assert which == "events"
    assert ("127.0.0.4", excluding) in exclusions.table.select("node", "job").rows()

    rates = cluster.run([*HOLDFAST, "mttf", str(books[0]), "--over-gpus", "0", "--json"])
    assert rates.returncode == 0, rates.stderr


def test_without_slurm_it_says_where_to_run_it(tmp_path: Path, cluster: SlurmCluster) -> None:
    """In one line, with exit code 2."""
    command = [*HOLDFAST, "collect", "--out", str(tmp_path / "books")]
    done = cluster.run(command, env={"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["holdfast: sacct: not found; run this where Slurm's commands are"]
