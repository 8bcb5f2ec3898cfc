"""The guard of node 0 judges the ranks of both nodes: two launchers on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from runs import Run, free_port, running, wait_until

from holdfast.findings import Suspect
from holdfast.guard.eventlog import log_name
from holdfast.guard.reporting import TOKEN_ENV
from holdfast.observe.eventlog import read_events
from holdfast.values import AnyEvent, GuardStarted, JobSlowed, StepSeen, SuspectsNamed

pytestmark = [pytest.mark.processes, pytest.mark.alone]

JOB = Path(__file__).with_name("stalljob.py")
STALLED = 3
"""The second rank of node 1."""


class Pair:
    """A job of two nodes with two ranks each, and the files by which it is told what to do."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stall, self._end = folder / "stall", folder / "end"
        env: dict[str, Any] = {
            "STALLED": str(STALLED),
            "STALL_FILE": str(self._stall),
            "END_FILE": str(self._end),
        }
        port = free_port()
        self.nodes: list[Run] = []
        for node in (0, 1):
            mine = folder / f"node{node}"
            mine.mkdir()
            where = ("--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", str(node))
            flags = ("--nnodes", "2", "--nproc-per-node", "2", *where, str(JOB))
            self.nodes.append(stack.enter_context(running(mine, *flags, **env)))

    def events(self, node: int) -> list[AnyEvent]:
        """What the log of a node holds so far."""
        log = self.nodes[node].run_dir / log_name(node)
        return [record.event for record in read_events(log).records] if log.exists() else []

    def count(self, node: int, kind: type) -> int:
        """How many such events there are."""
        return sum(isinstance(event, kind) for event in self.events(node))

    def guard(self, node: int) -> int:
        """Process id of a node's newest guard."""
        return [event.pid for event in self.events(node) if isinstance(event, GuardStarted)][-1]

    def wait_for_history(self) -> None:
        """Return when node 0's guard, as it is now, has seen some healthy seconds."""
        summaries = self.nodes[0].run_dir / "summaries.jsonl"
        wait_until(lambda: self.count(0, StepSeen) == self.count(1, StepSeen) == 2, 60)
        rows = len(summaries.read_text().splitlines())
        wait_until(lambda: len(summaries.read_text().splitlines()) >= rows + 4, 30)

    def stall(self) -> list[Suspect]:
        """Slow the rank down until somebody was named for it, and return who."""
        self._stall.touch()
        wait_until(self.named, 60)
        return self.named()[0].suspects

    def named(self) -> list[SuspectsNamed]:
        """Who was named on node 0 after a slowdown."""
        return [e for e in self.events(0) if isinstance(e, SuspectsNamed) and e.since_step > 0]

    def finish(self) -> list[int]:
        """End the job and return the exit codes."""
        self._end.touch()
        return [run.finish(60) for run in self.nodes]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A job of two nodes that is gone afterwards."""
    with ExitStack() as stack:
        yield Pair(tmp_path, stack)


def test_node_0_names_a_rank_of_node_1_also_after_both_guards_died(pair: Pair) -> None:
    """The guards that replace them find each other; node 0's asks the rank, names it, and is alone in it."""
    wait_until(lambda: pair.count(0, GuardStarted) == pair.count(1, GuardStarted) == 1, 60)
    for node in (1, 0):
        os.kill(pair.guard(node), signal.SIGKILL)
    wait_until(lambda: pair.count(0, GuardStarted) == pair.count(1, GuardStarted) == 2, 30)
    pair.wait_for_history()
    suspects = pair.stall()
    guards = [_secrets(pair.guard(node)) for node in (0, 1)]
    workers = [psutil.Process(pid).environ() for run in pair.nodes for pid in run.worker_pids()]
    assert pair.finish() == [0, 0]
    assert [(each.ranks, each.cause) for each in suspects] == [([STALLED], "data_loading")]
    assert "time.sleep(STALL_S)" in " ".join(suspects[0].evidence)
    assert (pair.count(1, JobSlowed), pair.count(1, SuspectsNamed)) == (0, 0)
    assert not any(token in command for token, command in guards)
    assert len(workers) == 4
    assert not any(TOKEN_ENV in environment for environment in workers)


def _secrets(pid: int) -> tuple[str, str]:
    """Return the token of a guard and its command line."""
    guard = psutil.Process(pid)
    return guard.environ()[TOKEN_ENV], " ".join(guard.cmdline())
