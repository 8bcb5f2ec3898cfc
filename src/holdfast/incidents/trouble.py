"""Which events belong to the same trouble: a fold over a run's events.

A slow job is one incident until it is arranged as a healthy one again. Workers that die together are one,
until training goes on, or, where it went on without them, until they are back.
"""

from __future__ import annotations

from holdfast.incidents.draft import Draft, open_draft, seconds_between
from holdfast.incidents.values import Incident
from holdfast.values import (
    Applied,
    AttemptEnded,
    Decided,
    Dropped,
    IncidentClosed,
    JobHung,
    JobRelieved,
    JobSlowed,
    NodeLeft,
    Profiled,
    Record,
    Regrouped,
    RunEnded,
    StepSeen,
    SuspectsNamed,
    Verified,
    WorkerDied,
    WorkerHung,
    WorkerReturned,
)


class Troubles:
    """All incidents of a run, oldest first."""

    def __init__(self) -> None:
        self._drafts: list[Draft] = []
        self._slow: Draft | None = None
        self._deaths: Draft | None = None
        """Those after which nobody has gone on yet."""
        self._hang: Draft | None = None
        self._missing: list[Draft] = []
        """Deaths after which the others went on."""
        self._since_steps: dict[int, Draft] = {}
        self._regrouped: Record | None = None

    def add(self, record: Record) -> None:
        """Take in what happened."""
        match record.event:
            case JobSlowed() | JobRelieved() | SuspectsNamed() | Profiled() | IncidentClosed():
                self._add_slow(record)
            case Decided() | Applied() | Verified() | Dropped() | NodeLeft():
                self._add_deed(record)
            case WorkerDied() | WorkerHung() | WorkerReturned() | Regrouped() | StepSeen() | JobHung():
                self._add_death(record)
            case AttemptEnded() | RunEnded():
                self._end(record)

    def view(self, step: int) -> tuple[Incident, ...]:
        """Return them as they are, with the last step that was seen."""
        return tuple(draft.view(step) for draft in self._drafts)

    @property
    def is_slow(self) -> bool:
        """Whether the job is slow now."""
        return self._slow is not None

    @property
    def is_hung(self) -> bool:
        """Whether nobody gets on."""
        return self._hang is not None

    def _open(self, draft: Draft) -> Draft:
        self._drafts.append(draft)
        return draft

    # --- slow jobs ----------------------------------------------------------------------------

    def _add_slow(self, record: Record) -> None:
        slow = self._slow
        match record.event:
            case JobSlowed(change=change) if slow is None:
                self._slow = self._open(open_draft("slow", record, since_step=change.step))
                self._since_steps[change.step] = self._slow
            case JobSlowed():
                assert slow is not None
                slow.tell("detected", record)
            case SuspectsNamed(suspects=[_, *_]) | Profiled(suspects=[_, *_]) if slow is not None:
                slow.suspects = list(record.event.suspects)
                slow.ranks = sorted({rank for each in slow.suspects for rank in each.ranks})
                slow.tell("named", record)
            case JobRelieved(change=change) if slow is not None and not change.is_slow:
                if slow.is_acted_on:
                    slow.tell("verified", record)
                else:
                    slow.close(record)
                    self._slow = None
            case IncidentClosed():
                self._close_slow(record, record.event)

    def _close_slow(self, record: Record, event: IncidentClosed) -> None:
        slow = self._slow or self._since_steps.get(event.since_step)
        if slow is None:  # What it was about had begun before this log.
            return
        slow.lost_s, slow.paid_s = event.lost_s, event.paid_s
        if slow.closed_at is None:
            slow.close(record)
        else:
            slow.tell("closed", record)
        self._slow = None

    def _add_deed(self, record: Record) -> None:
        slow = self._slow
        if slow is None:
            return
        match record.event:
            case Decided() as event:
                slow.lost_s = event.lost_s
                if not event.is_dry:
                    slow.decided = event
                slow.tell("decided", record)
            case Applied() as event:
                slow.apply(event)
                slow.tell("done", record)
            case Verified() as event:
                slow.verify(event)
                slow.tell("verified", record)
            case _:
                slow.tell("done", record)

    # --- deaths and hangs ---------------------------------------------------------------------

    def _add_death(self, record: Record) -> None:
        match record.event:
            case WorkerDied(death=death):
                self._mourn(record, death.rank)
            case WorkerHung(rank=rank):
                self._mourn(record, rank)
            case JobHung(suspects=suspects):
                self._hang = self._hang or self._open(open_draft("hang", record))
                self._hang.suspects = list(suspects)
                self._hang.ranks = sorted({rank for each in suspects for rank in each.ranks})
                if suspects:
                    self._hang.tell("named", record)
            case Regrouped(generation=generation) if generation > 0:
                self._go_on(record, record.event)
            case StepSeen():
                self._train_again(record)
            case WorkerReturned(rank=rank):
                for draft in self._missing:
                    if rank in draft.ranks:
                        draft.tell("decided", record)

    def _mourn(self, record: Record, rank: int) -> None:
        if self._deaths is None:
            self._deaths = self._open(open_draft("death", record))
        else:
            self._deaths.tell("detected", record)
        if rank not in self._deaths.ranks:
            self._deaths.ranks.append(rank)
        last = self._regrouped
        # The others may have noticed, and gone on, before its launcher did.
        if last is not None and isinstance(last.event, Regrouped) and rank in last.event.dead:
            self._go_on(last, last.event)

    def _go_on(self, record: Record, event: Regrouped) -> None:
        """Take in that the others train without those who died, or that somebody is back."""
        self._regrouped = record
        if self._deaths is not None:
            self._deaths.lost_s = seconds_between(self._deaths.opened_at, record.stamp.at)
            self._deaths.tell("done", record)
            self._missing.append(self._deaths)
            self._deaths = None
        for draft in [each for each in self._missing if not set(each.ranks) - set(event.members)]:
            draft.close(record)
            self._missing.remove(draft)

    def _train_again(self, record: Record) -> None:
        """Take in a step: what stood still does not any more."""
        if self._deaths is not None and record.stamp.attempt > 0:
            self._deaths.lost_s = seconds_between(self._deaths.opened_at, record.stamp.at)
            self._deaths.close(record, "training goes on after a restart")
            self._deaths = None
        if self._hang is not None:
            self._hang.lost_s = seconds_between(self._hang.opened_at, record.stamp.at)
            self._hang.close(record)
            self._hang = None

    def _end(self, record: Record) -> None:
        """Close what cannot go on after an attempt, and everything after the run."""
        slow, self._slow = self._slow, None
        open_drafts = [slow, self._hang, *self._missing]
        self._hang, self._missing, self._regrouped = None, [], None
        if isinstance(record.event, RunEnded):
            open_drafts.append(self._deaths)
            self._deaths = None
        is_well = isinstance(record.event, AttemptEnded) and record.event.reason == "succeeded"
        for draft in open_drafts:
            if draft is not None:
                draft.close(record, "training came to its end" if is_well else "the workers were stopped")
