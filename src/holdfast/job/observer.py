"""Everything that is observed in a training process, joined: one ring record per step.

A step that ends is told with what it was made of. Nothing here raises into the user's loop: what fails is
counted, and too many failures take the hooks out of the way for good.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.job.channels import Channels, channels_path
from holdfast.job.comms import Comms
from holdfast.job.cycle import Cycle
from holdfast.job.ddplog import DdpLog
from holdfast.job.linkpage import LinkPage, links_path
from holdfast.job.on_import import on_import
from holdfast.job.pauses import Pauses
from holdfast.job.ring import RingWriter, ring_path
from holdfast.job.symbols import Symbols
from holdfast.job.tally import MOST_ERRORS, Tally
from holdfast.telemetry import StepFlag

PIPELINE = "holdfast_pp"
"""What the ranks of a pipeline are called as a group."""
_CYCLES_PER_PLAN = 1 << 16


class Observer:
    """Watches the process that it is made in."""

    def __init__(self, folder: Path, *, rank: int, attempt: int = 0) -> None:
        self.steps = 0
        self.listeners: list[Callable[[int], None]] = []
        """Called with the number of each step that has ended, in the training thread."""
        self._ring = RingWriter(ring_path(folder, rank), rank=rank, attempt=attempt)
        self.tally = Tally(self._ring.words)
        """Of the step that goes on."""
        self._links = LinkPage(links_path(folder, rank), rank=rank, attempt=attempt)
        self._cycle = Cycle()
        self._channels = Channels(channels_path(folder, rank))
        self._comms = Comms(self.tally, self._channels)
        self._ddp = DdpLog(self.tally, self._channels)
        self._pauses = Pauses(self.tally, self._cycle, on_skip=self._skip)
        self._optimizers = Symbols(1, self._forget)
        self._last_ns = self._last_cpu_ns = 0
        self._last_cycle = 0
        self._plan = self._operations = 0
        # A forked child has our hooks, but the ring is its parent's.
        os.register_at_fork(after_in_child=self.tally.stop)

    @property
    def errors(self) -> int:
        """Failures of our own so far."""
        return self.tally.errors + self._channels.errors + self._links.errors

    def install(self) -> None:
        """Hook into what the script imports, as soon as it has."""
        self._hook("torch.optim.optimizer", self._install_updates)
        self._hook("torch.distributed", self._comms.install)
        self._hook("torch.distributed._functional_collectives", self._comms.wrap_functional)
        self._hook("torch.nn.parallel.distributed", self._ddp.install)
        self._pauses.install(self._hook)

    def _hook(self, module: str, install: Callable[[], None]) -> None:
        """Install a hook as soon as a module is there; where it does not fit this torch, that is counted."""

        def attempt() -> None:
            try:
                install()
            except Exception:
                self.tally.errors += 1

        on_import(module, attempt)

    def _install_updates(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self.mark_update)

    def mark_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Take in that an optimizer was called."""
        tally = self.tally
        try:
            if threading.get_ident() != tally.thread and not self._adopt_thread():
                return
            if self._cycle.mark_update(self._optimizers.of(optimizer, place=0)):
                self._end_step()
        except Exception:
            tally.errors += 1
            if tally.errors > MOST_ERRORS:
                tally.thread = -1

    def follow_plan(self, number: int, *, step: int, operations: int, pipeline: list[int]) -> None:
        """Take in that the job goes on by another plan, the next of which has a higher number.

        From this step on the rank has so many operations in each; ``pipeline`` are the ranks of its stages.
        """
        try:
            self.steps, self._plan, self._operations = step, number, operations
            self._channels.declare(PIPELINE, pipeline)
        except Exception:
            self.tally.errors += 1

    def _adopt_thread(self) -> bool:
        """Listen to the thread that trains where that is not the one that we were made in."""
        if self.tally.thread == -1 or self._last_ns:
            return False
        self.tally.thread = threading.get_ident()
        return True

    def _forget(self, symbol: int) -> None:
        try:
            self._cycle.forget(symbol)
        except Exception:
            self.tally.errors += 1

    def _skip(self) -> None:
        """End a step whose optimizer was not called."""
        self.tally.flags |= StepFlag.SKIPPED
        self._end_step()

    def _end_step(self) -> None:
        now_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        lasted_ns = now_ns - self._last_ns if self._last_ns else 0
        spent_ns = max(0, cpu_ns - self._last_cpu_ns)
        number, self.steps = self.steps, self.steps + 1
        # First, so that a failure below spoils no step but this one.
        self._last_ns, self._last_cpu_ns = now_ns, cpu_ns
        self._cycle.is_foreign = False
        self._record(number, now_ns, lasted_ns, spent_ns)
        self._comms.end_step()
        self._links.update(now_ns)
        for listener in self.listeners:
            listener(number)

    def _record(self, number: int, now_ns: int, lasted_ns: int, cpu_ns: int) -> None:
        self._ddp.end_step(lasted_ns)
        cycle = self._cycle.number + self._plan * _CYCLES_PER_PLAN
        if cycle != self._last_cycle or not lasted_ns:
            self.tally.flags |= StepFlag.FIRST
            self._last_cycle = cycle
        if self._operations:
            self.tally.work = self._operations
            self.tally.flags |= StepFlag.PLANNED
        parts, channels = self.tally.take(cpu_ns, self._last_cycle)
        self._ring.append(number, now_ns, lasted_ns, parts, channels)
