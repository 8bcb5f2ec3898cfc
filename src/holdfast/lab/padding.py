"""Emulated accelerators for pipelines: every operation of a worker lasts as long as it is told to."""

from __future__ import annotations

from holdfast.job.points import Point
from holdfast.lab.device import OpMark, Pacer, current
from holdfast.plan.ops import Op

_UNITS = {"F": 1.0, "I": 1.0, "W": 1.0, "B": 2.0}


class Padding:
    """A listener that waits at the end of an operation until its time is over: B takes as long as I and W."""

    def __init__(self, op_s: float, pacer: Pacer | None = None) -> None:
        self._device = current()
        self._device.use(op_s)  # So that it can be slowed down like any other.
        self._op_s = op_s
        self._pacer = pacer or Pacer()
        self._mark = OpMark()

    def reach(self, point: Point, op: Op | None, step: int) -> None:
        """Begin or finish the operation, if this is where it begins or ends."""
        if op is None:
            return
        if point in ("forward", "input", "weight", "backward"):
            self._mark.begin(f"emulated::{point}")
            self._pacer.begin()
        elif point == "done":
            self._pacer.finish(self._op_s * _UNITS[op.kind] * self._device.slowdown)
            self._mark.end()
