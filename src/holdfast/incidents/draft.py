"""An incident while it is being told: what is still to come is not known."""

from __future__ import annotations

import msgspec

from holdfast.findings import ChangePoint, Suspect
from holdfast.incidents.order import seconds_between
from holdfast.incidents.values import Incident, IncidentKind, Stage, StageName
from holdfast.incidents.words import phrase
from holdfast.values import Applied, Decided, Record, Verified


class Effect(msgspec.Struct, kw_only=True):
    """Something that is in force, and shortens every step, or makes it longer."""

    since_step: int
    gain_s: float

    def until(self, step: int) -> float:
        """Return what it comes to until a step."""
        return max(0.0, (step - self.since_step) * self.gain_s)


class Draft(msgspec.Struct, kw_only=True):
    """One incident, as far as it has come."""

    incident_id: str
    kind: IncidentKind
    opened_at: str
    attempt: int = 0
    since_step: int | None = None
    closed_at: str | None = None
    stages: list[Stage] = []
    ranks: list[int] = []
    suspects: list[Suspect] = []
    lost_s: float = 0.0
    """As the controller told, or as clocks tell of a job that stood still."""
    paid_s: float = 0.0
    saved_s: float = 0.0
    is_acted_on: bool = False
    """Something other than what the job began with is in force; the end is when that is undone."""
    decided: Decided | None = None
    effect: Effect | None = None
    healthy_s: float | None = None
    """What a step took before."""
    seen_s: float = 0.0
    """Lost by what steps were seen to take, until ``excess``."""
    excess: Effect | None = None
    """How much longer steps take now; None: no longer, or others tell what is lost."""
    before_s: float = 0.0
    """For how long it had gone on when it was noticed."""
    stood_s: float = 0.0
    """Lost before the others went on without who died."""
    went_on: tuple[int, str] | None = None
    """The first step that was seen after that, and when."""
    shown: Incident | None = None
    """As it was last viewed: who looks again and again at a long run is not to hold its past many times."""

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

    def stand_until(self, at: str) -> None:
        """Reckon that nobody trained from when it began until now."""
        self.lost_s = self.before_s + seconds_between(self.opened_at, at)

    def lag(self, step: int, at: str) -> None:
        """Take in a step that was made with somebody missing: what it took more than before is lost."""
        if self.healthy_s is None or self.went_on is None:
            self.went_on, self.stood_s = (step, at), self.lost_s
            return
        first, since = self.went_on
        lagged_s = seconds_between(since, at) - (step - first) * self.healthy_s
        self.lost_s = max(self.lost_s, self.stood_s + lagged_s)

    # --- what steps take ----------------------------------------------------------------------

    def change_pace(self, change: ChangePoint) -> None:
        """Take in that steps take longer, or less long; the first time what they took before is healthy."""
        if self.healthy_s is None:
            self.healthy_s = change.before_s
        if self.excess is not None:
            self.seen_s += self.excess.until(change.step)
        excess_s = max(0.0, change.after_s - self.healthy_s)
        self.excess = Effect(since_step=change.step, gain_s=excess_s) if change.is_slow else None
        # What it had cost when it was known is certain, however few steps are told afterwards.
        self.lost_s = max(self.lost_s, self.seen_s + self._excess_until(change.detected_step))

    def bill(self, lost_s: float) -> None:
        """Take in what the controller reckons that it has cost."""
        self.lost_s = max(self.lost_s, lost_s)

    def _excess_until(self, step: int) -> float:
        return 0.0 if self.excess is None else self.excess.until(step)

    # --- what was done ------------------------------------------------------------------------

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
        """Reckon up to a step what was lost, and what is saved by what is in force; both end there."""
        self.lost_s, self.saved_s = self._lost(step), self._saved(step)
        self.effect = self.excess = None

    def _lost(self, step: int) -> float:
        return max(self.lost_s, self.seen_s + self._excess_until(step))

    def _saved(self, step: int) -> float:
        return self.saved_s + (0.0 if self.effect is None else self.effect.until(step))

    def _stood(self) -> float:
        if self.kind == "slow":
            return 0.0
        return self.lost_s if self.went_on is None else self.stood_s

    def view(self, step: int) -> Incident:
        """Return it as it is now, with the last step that was seen; the same one while it does not change."""
        incident = Incident(
            incident_id=self.incident_id,
            kind=self.kind,
            opened_at=self.opened_at,
            closed_at=self.closed_at,
            since_step=self.since_step,
            stages=tuple(self.stages),
            ranks=tuple(self.ranks),
            suspects=tuple(self.suspects),
            lost_s=self._lost(step),
            stood_s=self._stood(),
            paid_s=self.paid_s,
            saved_s=self._saved(step),
        )
        if self.shown is None or incident != self.shown:
            self.shown = incident
        return self.shown


def open_draft(
    kind: IncidentKind, record: Record, *, since_step: int | None = None, words: str | None = None
) -> Draft:
    """Begin an incident with what was first seen of it."""
    draft = Draft(
        incident_id=record.stamp.event_id,
        kind=kind,
        opened_at=record.stamp.at,
        attempt=record.stamp.attempt,
        since_step=since_step,
    )
    draft.tell("detected", record, words)
    return draft
