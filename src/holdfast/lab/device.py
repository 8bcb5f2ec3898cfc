"""An emulated accelerator: an op lasts as long as it is told to, whatever the host is doing.

Tensors and messages are real; the host computes the op and then waits until the op's set duration, times
the device's slowdown, is over. Twelve workers on two cores so keep the timing of twelve devices. The
device has a clock of its own: an op starts when the one before ended if the host is only a little late,
so that the overshoot of sleeping does not add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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


class Device:
    """One emulated accelerator; ``slowdown`` may be set at any time and holds from the next op's end on."""

    def __init__(self, op_s: float = 0.0, pacer: Pacer | None = None) -> None:
        self.op_s = op_s
        """How long forward of a module lasts; 0 as long as no job uses the device."""
        self.slowdown = 1.0
        self._pacer = pacer or Pacer()

    def attach(self, module: Any) -> None:
        """Make forward of the module last ``op_s`` and backward twice that, as they do on hardware."""
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._finish_forward)
        module.register_full_backward_pre_hook(self._begin)
        module.register_full_backward_hook(self._finish_backward)

    def _begin(self, module: Any, inputs: Any) -> None:
        self._pacer.begin()

    def _finish_forward(self, module: Any, inputs: Any, output: Any) -> None:
        self._pacer.finish(self.op_s * self.slowdown)

    def _finish_backward(self, module: Any, grad_input: Any, grad_output: Any) -> None:
        self._pacer.finish(2 * self.op_s * self.slowdown)


_current = Device()


def current() -> Device:
    """Return the device of this process: there is one, as there would be with an accelerator."""
    return _current
