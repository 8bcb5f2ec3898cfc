"""The guard of node 0 judges the ranks of both nodes: two launchers on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from runs import wait_until
from twonodes import STALLED, Pair

from holdfast.guard.reporting import TOKEN_ENV
from holdfast.values import GuardStarted, JobSlowed, SuspectsNamed

pytestmark = [pytest.mark.processes, pytest.mark.alone]


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
