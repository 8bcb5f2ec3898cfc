"""Where a worker is, told to whoever wants to know: the guard by a page of memory, listeners by a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

from holdfast.job.status import Phase, StatusWriter
from holdfast.job.tally import Tally
from holdfast.plan.ops import Op

Point = Literal[
    "receive",
    "forward",
    "input",
    "weight",
    "backward",
    "done",
    "send",
    "reduction",
    "barrier",
    "step",
    "regroup",
]
"""An operation begins at the point named after it and ends at ``done``, before its output is sent."""
POINT_OF = {"F": "forward", "I": "input", "W": "weight", "B": "backward"}


class Listener(Protocol):
    """Hears of every point that its worker reaches; a timeline, an emulated accelerator, a saboteur."""

    def reach(self, point: Point, op: Op | None, step: int) -> None:
        """Be told, in the thread that trains, before it goes on."""


class Points:
    """Tells the status page, the watch and the listeners of one worker."""

    def __init__(
        self, listeners: Sequence[Listener], status: StatusWriter | None, tally: Tally | None = None
    ) -> None:
        self.listeners = list(listeners)
        self.generation = -1
        self.step = 0
        self.order_length = 0
        """How many operations the worker has in a step."""
        self._status = status
        self._tally = tally
        self._kept: Phase | None = None

    def hold(self, place: int) -> None:
        """Note which pipeline and stage the worker holds from now on."""
        if self._status is not None:
            self._status.held = place

    def enter(self, phase: Phase, op: int = -1) -> None:
        """Note what the worker is doing from now on, for the guard."""
        if self._status is not None and self._kept is None:
            self._status.enter(phase, generation=self.generation, step=self.step, op=op)

    def after_ops(self, phase: Phase) -> None:
        """Note that the operations of the step are behind this worker."""
        self.enter(phase, self.order_length)

    @contextmanager
    def keeping(self, phase: Phase) -> Iterator[None]:
        """Stay in one phase, whatever is done in it: work that no step of the past can be compared with."""
        self.enter(phase)
        self._kept = phase
        try:
            yield
        finally:
            self._kept = None

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Let the watch know how long an operation takes, what it receives and sends included."""
        began = self._tally.begin_operation() if self._tally is not None else None
        yield
        if self._tally is not None and began is not None:
            self._tally.end_operation(began)

    def reach(self, point: Point, op: Op | None = None) -> None:
        """Tell the listeners."""
        for listener in self.listeners:
            listener.reach(point, op, self.step)
