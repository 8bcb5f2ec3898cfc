"""Which events belong to the same trouble: a fold over a run's events.

A slow job is one incident until it is arranged as a healthy one again. Workers that die together are one,
until training goes on, or, where it went on without them, until they are back.
"""

from __future__ import annotations

from holdfast.incidents.draft import Draft
from holdfast.incidents.slowness import Slowness
from holdfast.incidents.standstill import Standstills
from holdfast.incidents.values import Incident
from holdfast.values import (
    Applied,
    AttemptEnded,
    AttemptStarted,
    Decided,
    Dropped,
    IncidentClosed,
    JobHung,
    JobRelieved,
    JobSlowed,
    LauncherDied,
    NodeLeft,
    Probed,
    Profiled,
    Record,
    Regrouped,
    RunEnded,
    RunStarted,
    StepSeen,
    SuspectsNamed,
    Verified,
    WorkerDied,
    WorkerHung,
    WorkerReturned,
)

_MOVING = JobSlowed | JobRelieved | Applied | Verified | IncidentClosed
"""Told only of a job that makes steps."""
_WELL = "training came to its end"
_KILLED = "the launcher was killed, and the workers with it"
_RUN_AGAIN = "the run was started again"
_AGAIN = "the workers were started again"
_STOPPED = "the workers were stopped"
ENDINGS = (_WELL, _KILLED, _RUN_AGAIN, _AGAIN, _STOPPED)
"""What ends an incident from outside."""


class Troubles:
    """All incidents of a run, oldest first."""

    def __init__(self) -> None:
        self._drafts: list[Draft] = []
        self._slow = Slowness(self._drafts.append)
        self._still = Standstills(self._drafts.append)
        self._step = -1

    def add(self, record: Record, *, is_head: bool = True) -> None:
        """Take in what happened; ``is_head``: the run goes on as long as who told it does."""
        if isinstance(record.event, _MOVING):
            self._still.move(record)
        if isinstance(record.event, JobSlowed) and self._still.usual_s is None:
            self._still.usual_s = record.event.change.before_s
        match record.event:
            case JobSlowed() | JobRelieved() | SuspectsNamed() | Profiled() | Probed() | IncidentClosed():
                self._slow.add(record, self._step)
            case Decided() | Applied() | Verified() | Dropped() | NodeLeft():
                self._slow.do(record)
            case WorkerDied() | WorkerHung() | WorkerReturned() | Regrouped() | JobHung():
                self._still.add(record, self._step)
            case StepSeen():
                self._still.restart(record)
            case AttemptEnded() | RunEnded() | LauncherDied() if is_head:
                self._end(record)

    def reach(self, step: int, at: str = "") -> None:
        """Take in how far the run has come, and by when."""
        self._step = max(self._step, step)
        if at:
            self._still.step(step, at)

    def start_anew(self, record: Record) -> None:
        """Take in a new attempt, or a new run: nothing more is lost or saved by the steps before."""
        self._end(record)
        for draft in self._drafts:
            draft.settle(self._step)
        self._slow.forget()
        self._step = -1

    def view(self) -> tuple[Incident, ...]:
        """Return them as they are."""
        return tuple(draft.view(self._step) for draft in self._drafts)

    @property
    def is_slow(self) -> bool:
        """Whether the job is slow now."""
        return self._slow.now is not None

    @property
    def is_hung(self) -> bool:
        """Whether nobody gets on."""
        return self._still.hang is not None

    def _end(self, record: Record) -> None:
        """Close what cannot go on after an attempt, and everything after the run."""
        words = _tell_end(record)
        is_over = words == _WELL or not isinstance(record.event, AttemptEnded | AttemptStarted)
        for draft in [
            *self._slow.end(record, is_over=is_over),
            *self._still.end(record, is_over=is_over),
        ]:
            draft.close(record, words)


def _tell_end(record: Record) -> str:
    match record.event:
        case AttemptEnded(reason="succeeded") | RunEnded(reason="succeeded"):
            return _WELL
        case LauncherDied():
            return _KILLED
        case RunStarted():
            return _RUN_AGAIN
        case AttemptStarted():
            return _AGAIN
        case _:
            return _STOPPED
