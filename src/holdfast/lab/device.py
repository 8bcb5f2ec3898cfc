"""An emulated accelerator: an op lasts as long as it is told to, whatever the host is doing.

Tensors and messages are real; the host computes the op and then waits until the op's set duration, times
the device's slowdown, is over. Twelve workers on two cores so keep the timing of twelve devices. The
device has a clock of its own: an op starts when the one before ended if the host is only a little late,
so that the overshoot of sleeping does not add up.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.job.attach import RINGS_ENV
from holdfast.job.files import replace_file

LABEL = "emulated accelerator"
SLACK_S = 0.002
"""A host this late counts as on time: the op had been queued while the one before was running."""


def start_of(now_s: float, free_at_s: float) -> float:
    """Return when an op starts on a device that is free at the given time."""
    return free_at_s if now_s - free_at_s < SLACK_S else now_s


class Pacer:
    """Makes consecutive pieces of work last as long as they should; the clock is passed in."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._free_at_s = float("-inf")
        self._started_s = 0.0

    def begin(self) -> None:
        """Start a piece of work."""
        self._started_s = start_of(self._clock(), self._free_at_s)

    def finish(self, duration_s: float) -> None:
        """Wait until the piece of work has lasted as long as given."""
        self._free_at_s = self._started_s + duration_s
        late_s = self._clock() - self._free_at_s
        if late_s < 0:
            self._sleep(-late_s)


class OpMark:
    """Shows an emulated op in traces of torch's profiler, as one of a device's."""

    def __init__(self) -> None:
        self._open: Any = None

    def begin(self, name: str) -> None:
        """Begin an op; one that was broken off is over now."""
        from torch._C._profiler import _RecordFunctionFast

        self.end()
        self._open = _RecordFunctionFast(name)
        self._open.__enter__()

    def end(self) -> None:
        """End it."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


class Device:
    """One emulated accelerator; ``slowdown`` may be set at any time and holds from the next op's end on.

    Its ops show in traces of torch's profiler, and its clock is told to the guard, as those of a real one.
    """

    def __init__(self, op_s: float = 0.0, pacer: Pacer | None = None) -> None:
        self.op_s = op_s
        """How long forward of a module lasts; 0 as long as no job uses the device."""
        self._slowdown = 1.0
        self._pacer = pacer or Pacer()
        self._mark = OpMark()

    @property
    def slowdown(self) -> float:
        """How many times longer an op lasts."""
        return self._slowdown

    @slowdown.setter
    def slowdown(self, factor: float) -> None:
        if factor != self._slowdown:
            self._slowdown = factor
            _tell_clock(1 / factor)

    def use(self, op_s: float) -> None:
        """Take note that a job uses the device, and how long an op of it lasts."""
        self.op_s = op_s
        _tell_clock(1 / self._slowdown)

    def attach(self, module: Any) -> None:
        """Make forward of the module last ``op_s`` and backward twice that, as they do on hardware."""
        _tell_clock(1 / self._slowdown)
        module.register_forward_pre_hook(self._begin_forward)
        module.register_forward_hook(self._finish_forward)
        module.register_full_backward_pre_hook(self._begin_backward)
        module.register_full_backward_hook(self._finish_backward)

    def _begin_forward(self, module: Any, inputs: Any) -> None:
        self._begin("emulated::forward")

    def _begin_backward(self, module: Any, grad_output: Any) -> None:
        self._begin("emulated::backward")

    def _finish_forward(self, module: Any, inputs: Any, output: Any) -> None:
        self._finish(self.op_s)

    def _finish_backward(self, module: Any, grad_input: Any, grad_output: Any) -> None:
        self._finish(2 * self.op_s)

    def _begin(self, name: str) -> None:
        self._mark.begin(name)
        self._pacer.begin()

    def _finish(self, duration_s: float) -> None:
        self._pacer.finish(duration_s * self._slowdown)
        self._mark.end()


def _tell_clock(share: float) -> None:
    """Write down how fast the device runs, where a guard looks for it while it profiles."""
    rings, rank = os.environ.get(RINGS_ENV), os.environ.get("RANK")
    if rings and rank:
        with contextlib.suppress(OSError):
            replace_file(Path(rings) / f"device_{rank}", f"{share:.4f}".encode())


_current = Device()


def current() -> Device:
    """Return the device of this process: there is one, as there would be with an accelerator."""
    return _current
