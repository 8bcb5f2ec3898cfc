"""Puts the times of a batch that has come from another node on the clock of this one."""

from __future__ import annotations

from msgspec.structs import force_setattr

from holdfast.guard.batches import Batch

_WINDOW_S = 300.0
"""What the least of one such window was is known until the next one is over."""


class ClockOffset:
    """What to add to times of a node's clock to have them on ours, good to some milliseconds.

    It is the least time that a report has seemed to take: the one that was held up least. This is the one
    place where times of two nodes are subtracted, so that seconds of all nodes can be laid side by side; the
    result must never be used to tell what came first. Clocks drift (a second in a day is usual), so what is
    older than ten minutes is forgotten.
    """

    def __init__(self) -> None:
        self._since_s = 0.0
        self._least: float | None = None
        self._least_before: float | None = None

    def update(self, arrived_s: float, sent_s: float) -> float:
        """Take in one report, and return the offset."""
        if arrived_s - self._since_s > _WINDOW_S:
            self._since_s = arrived_s
            self._least_before, self._least = self._least, None
        seen = arrived_s - sent_s
        self._least = seen if self._least is None else min(self._least, seen)
        return self._least if self._least_before is None else min(self._least, self._least_before)


def rebase(batch: Batch, offset_s: float) -> None:
    """Move all times of a batch that has just been decoded, and that nobody else knows, in place."""
    for step in batch.steps:
        force_setattr(step, "ended_s", step.ended_s + offset_s)
    for call in batch.calls.values():
        if call.since_s is not None:
            force_setattr(call, "since_s", call.since_s + offset_s)
    for snapshot in batch.links:
        force_setattr(snapshot, "at_s", snapshot.at_s + offset_s)
    force_setattr(batch.sample, "at_s", batch.sample.at_s + offset_s)
