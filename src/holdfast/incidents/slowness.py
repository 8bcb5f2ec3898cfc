"""Slow jobs as incidents: one until the job is arranged as a healthy one again.

The guard of the first node tells all of it, so its own log has it in order.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.incidents.draft import Draft, open_draft
from holdfast.values import (
    Applied,
    Decided,
    Dropped,
    IncidentClosed,
    JobRelieved,
    JobSlowed,
    Probed,
    Profiled,
    Record,
    SuspectsNamed,
    Verified,
)


class Slowness:
    """The slow job that there is now, and those that were."""

    def __init__(self, keep: Callable[[Draft], None]) -> None:
        self._keep = keep
        self.now: Draft | None = None
        self._since_steps: dict[int, Draft] = {}

    def add(self, record: Record, step: int) -> None:
        """Take in what the controller told, with the last step that was seen."""
        slow = self.now
        match record.event:
            case JobSlowed(change=change):
                if slow is None:
                    slow = self._open(record, change.step)
                else:
                    slow.tell("detected", record)
                slow.change_pace(change)
            case JobRelieved() if slow is not None:
                self._relieve(slow, record, record.event)
            case SuspectsNamed(since_step=since_step) if since_step > 0:
                self._name(record, record.event)
            case Profiled() | Probed():
                self._name(record, record.event)
            case IncidentClosed():
                self._close(record, record.event, step)

    def do(self, record: Record) -> None:
        """Take in what is done about it."""
        slow = self.now
        if slow is None:
            return
        match record.event:
            case Decided() as event:
                slow.bill(event.lost_s)
                if not event.is_dry:
                    slow.decided = event
                slow.tell("decided", record)
            case Applied() as event:
                slow.apply(event)
                slow.tell("done", record)
            case Verified() as event:
                slow.verify(event)
                slow.tell("verified", record)
            case Dropped():
                slow.tell("decided", record)  # Nothing was done: it is about the decision.
            case _:
                slow.tell("done", record)

    def _open(self, record: Record, since_step: int) -> Draft:
        self.now = open_draft("slow", record, since_step=since_step)
        self._since_steps[since_step] = self.now
        self._keep(self.now)
        return self.now

    def _name(self, record: Record, event: SuspectsNamed | Profiled | Probed) -> None:
        """Take in who it is; that nobody can be named does not take back what was said."""
        if self.now is not None and event.suspects:
            self.now.suspects = list(event.suspects)
            self.now.ranks = sorted({rank for each in event.suspects for rank in each.ranks})
            self.now.tell("named", record)

    def _relieve(self, slow: Draft, record: Record, event: JobRelieved) -> None:
        slow.change_pace(event.change)
        if event.change.is_slow or slow.is_acted_on:
            slow.tell("verified", record)
        else:
            slow.settle(event.change.step)
            slow.close(record)
            self.now = None

    def _close(self, record: Record, event: IncidentClosed, step: int) -> None:
        slow = self._since_steps.get(event.since_step, self.now)
        if slow is None:  # What it was about had begun before this log.
            return
        slow.settle(step)
        slow.lost_s, slow.paid_s = event.lost_s, event.paid_s
        slow.seen_s = 0.0
        if slow.closed_at is None:
            slow.close(record)
        else:
            slow.tell("closed", record)
        if slow is self.now:
            self.now = None

    def end(self, record: Record, *, is_over: bool) -> list[Draft]:
        """Return what ends with an attempt."""
        slow = self.now
        if slow is None or (slow.attempt > record.stamp.attempt and not is_over):
            return []
        self.now = None
        return [slow]

    def forget(self) -> None:
        """Forget what belongs to steps that are counted anew."""
        self._since_steps = {}
