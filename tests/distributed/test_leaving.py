"""A node that is too slow leaves its job, and one that stood by takes its place."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from runs import Run, free_port, running, wait_until

from holdfast.guard.eventlog import log_name
from holdfast.job.wishes import read_crew
from holdfast.observe.eventlog import read_events
from holdfast.values import AnyEvent, AttemptStarted, Decided, NodeLeft, StepSeen

pytestmark = [pytest.mark.processes, pytest.mark.alone]

JOB = Path(__file__).with_name("slownode.py")


class Nodes:
    """Launchers of one job on this machine, started one by one."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._port = free_port()
        self._where = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{self._port}")
        self.runs: dict[str, Run] = {}

    def start(self, name: str, *flags: str) -> Run:
        mine = self._folder / name
        mine.mkdir()
        env: dict[str, Any] = {
            "NODE": name,
            **{each: str(self._folder / each) for each in ("SLOW_FILE", "END_FILE", "CHECKPOINT")},
        }
        words = ("--nnodes", "2:2", *self._where, "--rdzv-id", "j", "--rdzv-conf", "last_call_timeout=1")
        run = self._stack.enter_context(running(mine, *words, *flags, str(JOB), **env))
        self.runs[name] = run
        return run

    def keeps_store(self) -> bool:
        """Say whether somebody does: who comes first, and who may never leave."""
        with socket.socket() as door:
            return door.connect_ex(("localhost", int(self._port))) == 0

    def make_slow(self, name: str) -> None:
        (self._folder / "SLOW_FILE").write_text(name)

    def end(self, step: int = 0) -> None:
        (self._folder / "END_FILE").write_text(str(step))

    def events(self, name: str, node: int) -> list[AnyEvent]:
        log = self.runs[name].run_dir / log_name(node)
        return [record.event for record in read_events(log).records] if log.exists() else []

    def told(self, name: str, node: int, kind: type) -> list[Any]:
        return [event for event in self.events(name, node) if isinstance(event, kind)]


def _spares(run: Run) -> int:
    """Return how many nodes the launcher of node 0 has seen standing by."""
    import json

    info = run.run_dir / "run.json"
    crew = read_crew(Path(json.loads(info.read_text())["rings"])) if info.exists() else None
    return crew.spares if crew is not None else 0


def test_slow_node_leaves_and_who_stood_by_takes_its_place(tmp_path: Path) -> None:
    """The restart is not counted, goes on from the script's own checkpoint, and is as fast as before."""
    with ExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        first = nodes.start("a", "--act", "S4")
        wait_until(nodes.keeps_store, 60)
        slow = nodes.start("b", "--act", "S4")
        wait_until(lambda: nodes.told("a", 0, StepSeen), 60)
        spare = nodes.start("c", "--act", "S4")
        wait_until(lambda: _spares(first) == 1, 60)
        nodes.make_slow("b")
        wait_until(lambda: len(nodes.told("a", 0, AttemptStarted)) == 2, 120)
        assert slow.finish() == 0, slow.output
        nodes.end(600)
        assert (first.finish(120), spare.finish(120)) == (0, 0), first.output
    (decided,) = nodes.told("a", 0, Decided)
    assert (decided.level, decided.without, decided.is_dry) == ("S4", [1], False)
    (left,) = nodes.told("b", 1, NodeLeft)
    assert (left.ranks, left.scheduler) == ([1], "no scheduler to tell")
    assert "this node is too slow and leaves the job" in slow.stderr
    assert "restarting all workers" not in first.stderr
    ends = [
        line.split(" ends ")[1]
        for run in (first, spare)
        for line in run.stdout.splitlines()
        if " ends " in line
    ]
    assert len(ends) == 2
    assert ends[0] == ends[1]
    assert ends[0].startswith("at step 6")
    assert "rank 1 on c ends" in spare.stdout
