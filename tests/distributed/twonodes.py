"""A job of two nodes with two ranks each: two launchers on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from runs import Run, free_port, running, wait_until

from holdfast.findings import Suspect
from holdfast.guard.eventlog import log_name
from holdfast.observe.eventlog import read_events
from holdfast.values import AnyEvent, GuardStarted, StepSeen, SuspectsNamed

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
