"""An incident while it is being told: what is still to come is not known."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.findings import Suspect
from holdfast.incidents.values import Incident, IncidentKind, Stage, StageName
from holdfast.incidents.words import phrase
from holdfast.values import Applied, Decided, Record, Verified


class Effect(msgspec.Struct, kw_only=True):
    """Something that is in force, and shortens every step."""

    since_step: int
    gain_s: float


class Draft(msgspec.Struct, kw_only=True):
    """One incident, as far as it has come."""

    incident_id: str
    kind: IncidentKind
    opened_at: str
    since_step: int | None = None
    closed_at: str | None = None
    stages: list[Stage] = []
    ranks: list[int] = []
    suspects: list[Suspect] = []
    lost_s: float = 0.0
    paid_s: float = 0.0
    saved_s: float = 0.0
    is_acted_on: bool = False
    """Something other than what the job began with is in force; the end is when that is undone."""
    decided: Decided | None = None
    effect: Effect | None = None

    def tell(self, name: StageName, record: Record, words: str | None = None) -> None:
        """Add a moment."""
        self.stages.append(
            Stage(
                name=name,
                at=record.stamp.at,
                words=words if words is not None else phrase(record.event),
                event_id=record.stamp.event_id,
            )
        )

    def close(self, record: Record, words: str | None = None) -> None:
        """End it."""
        self.closed_at = record.stamp.at
        self.tell("closed", record, words)

    def apply(self, event: Applied) -> None:
        """Take in that a decision is in force; what was in force before has saved what it could."""
        self.settle(event.version)
        self.paid_s += event.pause_s
        self.is_acted_on = event.level != "undo"
        if self.is_acted_on and self.decided is not None and self.decided.number == event.number:
            gain_s = self.decided.gain * self.decided.healthy_s
            self.effect = Effect(since_step=event.version, gain_s=gain_s)

    def verify(self, event: Verified) -> None:
        """Take in what it is worth: from then on it is known, and not only promised."""
        if self.effect is not None:
            self.effect.gain_s = max(0.0, event.gained) * event.healthy_s

    def settle(self, step: int) -> None:
        """Reckon up to a step what is saved by what is in force."""
        self.saved_s += self.saving(step)
        self.effect = None

    def saving(self, step: int) -> float:
        """Return what the last thing that was done has saved until a step."""
        if self.effect is None:
            return 0.0
        return max(0, step - self.effect.since_step) * self.effect.gain_s

    def view(self, step: int) -> Incident:
        """Return it as it is now, with the last step that was seen."""
        return Incident(
            incident_id=self.incident_id,
            kind=self.kind,
            opened_at=self.opened_at,
            closed_at=self.closed_at,
            since_step=self.since_step,
            stages=tuple(self.stages),
            ranks=tuple(self.ranks),
            suspects=tuple(self.suspects),
            lost_s=self.lost_s,
            paid_s=self.paid_s,
            saved_s=self.saved_s + self.saving(step),
        )


def open_draft(kind: IncidentKind, record: Record, *, since_step: int | None = None) -> Draft:
    """Begin an incident with what was first seen of it."""
    draft = Draft(
        incident_id=record.stamp.event_id, kind=kind, opened_at=record.stamp.at, since_step=since_step
    )
    draft.tell("detected", record)
    return draft


def seconds_between(first: str, then: str) -> float:
    """Return the time between two moments of one clock, 0 where it ran backwards."""
    return max(0.0, (datetime.fromisoformat(then) - datetime.fromisoformat(first)).total_seconds())
