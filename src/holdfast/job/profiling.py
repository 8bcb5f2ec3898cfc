"""Torch's profiler on demand: started and stopped between two steps, in the thread that trains.

An order comes by the attendant's thread and waits here; the training thread looks for one when a step ends,
which costs one load. Never by a signal: the profiler cannot be entered twice. Whoever trains may have a
profiler of their own, and theirs goes first.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast.job.files import replace_file
from holdfast.telemetry import ProfileOrder, ProfileOutcome, ProfileResult

MOST_BYTES = 192 << 20
"""That a profile may take of the memory, before it is cut short."""
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def profile_path(folder: Path) -> Path:
    """Return where a guard lays its order for the ranks of a node."""
    return folder / "profile.json"


def profiled_path(folder: Path, order: str, rank: int) -> Path:
    """Return where a rank lays what came of an order."""
    return folder / f"profiled_{order}_{rank}.json"


def trace_path(folder: Path, rank: int) -> Path:
    """Return the file of a rank's trace."""
    return folder / f"rank_{rank}.pt.trace.json"


class Profiling:
    """The profiler of one process; one order at a time, and a newer one replaces one that has not begun."""

    def __init__(self, folder: Path, *, rank: int) -> None:
        self.errors = 0
        self._folder = folder
        self._rank = rank
        self._order: ProfileOrder | None = None
        self._running: _Running | None = None
        self._theirs = 0
        """Profilers of the script that are in use."""
        self._is_ours = False
        """Whether it is us who call torch just now."""

    def take(self, order: ProfileOrder) -> None:
        """Take in an order; called by another thread than the rest."""
        if self._rank in order.ranks and self._running is None:
            self._order = order

    def end_step(self, number: int) -> None:
        """Start or stop, where it is time to; called after every step."""
        order = self._order
        if order is None:
            return
        try:
            if self._running is not None:
                if number >= order.last_step or _memory_bytes() > self._running.most_bytes:
                    self._finish(order, number)
            elif number + 1 == order.first_step:
                self._begin(order)
            elif number + 1 > order.first_step:
                self._answer(order, "late", error=f"step {number} was over when the order came")
        except Exception as error:  # Whatever is wrong with the profiler, training goes on.
            self.errors += 1
            self._running = None
            self._answer(order, "failed", error=f"{type(error).__name__}: {error}")

    def install(self) -> None:
        """Learn of profilers that the script starts; ours ends before one of theirs begins."""
        from torch.autograd import profiler

        theirs_too: Any = profiler.profile
        prepare, leave = theirs_too._prepare_trace, theirs_too.__exit__

        def prepare_theirs(theirs: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours:
                self._theirs += 1
                self._give_up()
            return prepare(theirs, *args, **kwargs)

        def leave_theirs(theirs: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours:
                self._theirs = max(0, self._theirs - 1)
            return leave(theirs, *args, **kwargs)

        theirs_too._prepare_trace, theirs_too.__exit__ = prepare_theirs, leave_theirs

    # --- between two steps ----------------------------------------------------------------------

    def _begin(self, order: ProfileOrder) -> None:
        if self._theirs > 0 or _is_enabled():
            self._answer(order, "busy", error="the script has a profiler of its own running")
            return
        began_s = time.monotonic()
        self._is_ours = True
        try:
            profiler = _make()
            profiler.start()
        finally:
            self._is_ours = False
        most_bytes = _memory_bytes() + MOST_BYTES
        self._running = _Running(profiler, time.monotonic() - began_s, most_bytes)
        # A process that ends with a profiler running dies of it.
        atexit.register(self._give_up)

    def _finish(self, order: ProfileOrder, number: int) -> None:
        running = self._running
        assert running is not None
        began_s = time.monotonic()
        self._stop(running)
        path = trace_path(Path(order.folder), self._rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        running.profiler.export_chrome_trace(str(path))
        self._answer(
            order,
            "done",
            trace=str(path),
            steps=number - order.first_step + 1,
            blocked_s=running.start_s + time.monotonic() - began_s,
        )

    def _give_up(self) -> None:
        """End ours before its last step: theirs is about to begin, or the process is about to end."""
        if self._running is None or self._order is None:
            return
        order = self._order
        try:
            self._stop(self._running)
        except Exception:
            self.errors += 1
        self._running = None
        self._answer(order, "busy", error="the script has started a profiler of its own, or ended")

    def _stop(self, running: _Running) -> None:
        self._is_ours = True
        try:
            running.profiler.stop()
        finally:
            self._is_ours = False
            self._running = None
            atexit.unregister(self._give_up)

    def _answer(self, order: ProfileOrder, outcome: ProfileOutcome, **told: Any) -> None:
        self._order = None
        result = ProfileResult(order=order.id, rank=self._rank, outcome=outcome, **told)
        try:
            replace_file(profiled_path(self._folder, order.id, self._rank), msgspec.json.encode(result))
        except OSError:
            self.errors += 1


class _Running(msgspec.Struct, frozen=True):
    """A profiler that has been started."""

    profiler: Any
    start_s: float
    """How long that took."""
    most_bytes: int
    """Of memory: a script of very many small calls is profiled for fewer steps."""


def _memory_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):  # No Linux.
        return 0


def _is_enabled() -> bool:
    autograd = sys.modules["torch"]._C._autograd
    return bool(autograd._profiler_enabled())


def _make() -> Any:
    """Return torch's profiler: with stacks, and without what costs much and is not looked at."""
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    try:
        config = _ExperimentalConfig(record_python_gc_info=True)
    except TypeError:  # An older torch.
        config = _ExperimentalConfig()
    return profile(activities=activities, with_stack=True, experimental_config=config)
