"""The launcher's side of ``job.standby``: one process of this node that is ready to become a worker."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from holdfast.guard.workers import Process, WorkerPlan
from holdfast.job.standby import Call

AGAIN_S = 15.0
"""After one was needed, the next is made ready: not at once, lest it delay whom it would help."""
_MOST_BYTES = 60_000
"""A call that fits into a pipe: nobody waits for a process that does not read."""


class Standby:
    """At most one process in waiting; call ``look`` often."""

    def __init__(self, boot: Sequence[str]) -> None:
        self._boot = list(boot)
        """Start of every worker's command line; ends with ``-m`` and a module."""
        self._process: Process | None = None
        self._not_before_s = 0.0

    def look(self, example: WorkerPlan) -> None:
        """Start one if there is none, with what it will have in common with any worker."""
        if self._process is not None or time.monotonic() < self._not_before_s or not self._knows(example):
            return
        # Without the last word, which is the module.
        command = [*self._boot[:-1], "holdfast.job.standby"]
        try:
            self._process = Process(command, example.env, is_called=True)
        except OSError:  # No memory or no process to be had; a worker is started without, if need be.
            self._not_before_s = time.monotonic() + AGAIN_S

    def take(self, plan: WorkerPlan) -> Process | None:
        """Return a process that has become the worker, None if there is none to be had."""
        process, self._process = self._process, None
        self._not_before_s = time.monotonic() + AGAIN_S
        if process is None:
            return None
        call = Call(
            module=self._boot[-1],
            argv=plan.command[len(self._boot) :],
            env=process.own_env(plan.env),
        )
        line = msgspec.json.encode(call) + b"\n"
        if self._knows(plan) and len(line) <= _MOST_BYTES and process.call(line):
            return process
        process.drop()
        return None

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.drop()
            self._process = None

    def _knows(self, plan: WorkerPlan) -> bool:
        """Say whether a worker is a script of this interpreter, started by it alone."""
        size = len(self._boot)
        return plan.command[:size] == self._boot and plan.command[size : size + 1] != ["--exec"]
