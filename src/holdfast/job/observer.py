"""Everything that is observed in a training process, joined: one ring record per step.

A step that ends is told with what it was made of. Nothing here raises into the user's loop: what fails is
counted, and too many failures take the hooks out of the way for good.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
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
from holdfast.job.tally import Tally
from holdfast.values import StepFlag


class Observer:
    """Watches the process that it is made in."""

    def __init__(self, folder: Path, *, rank: int, attempt: int = 0) -> None:
        self.steps = 0
        self._ring = RingWriter(ring_path(folder, rank), rank=rank, attempt=attempt)
        self._tally = Tally(self._ring.words)
        # A forked child has our hooks, but the ring is its parent's.
        os.register_at_fork(after_in_child=self._tally.stop)
        self._cycle = Cycle()
        channels = Channels(channels_path(folder, rank))
        self._comms = Comms(self._tally, channels)
        self._links = LinkPage(links_path(folder, rank), rank=rank, attempt=attempt)
        self._ddp = DdpLog(self._tally, channels)
        self._pauses = Pauses(self._tally, self._cycle, on_skip=self._skip)
        self._last_ns = self._last_cpu_ns = 0
        self._last_cycle = 0
        self._symbols: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.listeners: list[Callable[[int], None]] = []
        """Called with the number of each step that has ended, in the training thread."""

    @property
    def errors(self) -> int:
        """Failures of our own so far."""
        return self._tally.errors

    def install(self) -> None:
        """Hook into what the script imports, as soon as it has."""
        on_import("torch.optim.optimizer", self._install_updates)
        on_import("torch.distributed", self._comms.install)
        on_import("torch.distributed._functional_collectives", self._comms.wrap_functional)
        on_import("torch.nn.parallel.distributed", self._ddp.install)
        self._pauses.install()

    def _install_updates(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self.mark_update)

    def mark_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Take in that an optimizer was called."""
        try:
            if threading.get_ident() != self._tally.thread:
                return
            if self._cycle.mark_update(self._symbol(optimizer)):
                self._end_step()
        except Exception:
            self._tally.errors += 1

    def _symbol(self, optimizer: Any) -> int:
        symbol = self._symbols.get(optimizer)
        if symbol is None:
            symbol = self._symbols[optimizer] = 1 + max(self._symbols.values(), default=0)
            weakref.finalize(optimizer, self._cycle.forget, symbol).atexit = False
        return symbol

    def _skip(self) -> None:
        """End a step whose optimizer was not called."""
        self._tally.flags |= StepFlag.SKIPPED
        self._end_step()

    def _end_step(self) -> None:
        now_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        self._ddp.end_step()
        tally = self._tally
        if self._cycle.number != self._last_cycle or not self._last_ns:
            tally.flags |= StepFlag.FIRST
            self._last_cycle = self._cycle.number
        parts, channels = tally.take(max(0, cpu_ns - self._last_cpu_ns), self._last_cycle)
        self._ring.append(self.steps, now_ns, now_ns - self._last_ns if self._last_ns else 0, parts, channels)
        self._comms.end_step()
        self._cycle.is_foreign = False
        self._last_ns, self._last_cpu_ns = now_ns, cpu_ns
        ended, self.steps = self.steps, self.steps + 1
        self._links.update(now_ns)
        for listener in self.listeners:
            listener(ended)
