"""An incident as a row of the page: how far it has come, how long each stage took, what it cost."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from holdfast.diagnose.telling import tell_suspect
from holdfast.findings import Suspect
from holdfast.incidents.values import Incident, Stage, StageName
from holdfast.serve.web.views.looks import KIND_LOOKS, Look
from holdfast.serve.web.views.words import headline, parse, say_gpu_h, say_span, say_times

STAGES: tuple[StageName, ...] = ("detected", "named", "decided", "done", "verified", "closed")
_HOUR_S = 3600.0


class Moment(NamedTuple):
    """One of the six stages."""

    name: StageName
    at: str
    """Empty: it has not come to that."""
    after: str
    """How long after the first sign."""
    is_passed: bool = False
    """A later one has come without it."""


class Cost(NamedTuple):
    """A sum in seconds and in GPU time."""

    name: str
    seconds: str
    gpu_h: str
    note: str


class Blamed(NamedTuple):
    """A suspect in words."""

    words: str
    numbers: tuple[str, ...]
    evidence: tuple[str, ...]


class Told(NamedTuple):
    """An incident as it is shown."""

    incident_id: str
    look: Look
    title: str
    is_open: bool
    opened_at: str
    lasted: str
    since_step: int | None
    track: tuple[Moment, ...]
    stages: tuple[Stage, ...]
    suspects: tuple[Blamed, ...]
    costs: tuple[Cost, ...]


def tell_incident(incident: Incident, *, gpus: int, now: datetime) -> Told:
    """Return an incident in words."""
    return Told(
        incident_id=incident.incident_id,
        look=KIND_LOOKS[incident.kind],
        title=headline(incident),
        is_open=incident.is_open,
        opened_at=incident.opened_at,
        lasted=_lasted(incident, now),
        since_step=incident.since_step,
        track=tuple(_moment(incident, name) for name in STAGES),
        stages=incident.stages,
        suspects=tuple(map(_blame, incident.suspects)),
        costs=_costs(incident, gpus),
    )


def _lasted(incident: Incident, now: datetime) -> str:
    opened = parse(incident.opened_at)
    closed = parse(incident.closed_at) if incident.closed_at is not None else now
    if opened is None or closed is None:
        return ""
    return say_span(max(0.0, (closed - opened).total_seconds()))


def _moment(incident: Incident, name: StageName) -> Moment:
    first = next((stage for stage in incident.stages if stage.name == name), None)
    if first is None:
        later = STAGES[STAGES.index(name) :]
        return Moment(name, "", "", is_passed=any(stage.name in later for stage in incident.stages))
    opened, at = parse(incident.opened_at), parse(first.at)
    after_s = (at - opened).total_seconds() if opened is not None and at is not None else 0.0
    return Moment(name, first.at, f"+{say_span(after_s)}" if after_s > 0 else "")


def _costs(incident: Incident, gpus: int) -> tuple[Cost, ...]:
    saved = incident.saved_s
    return (
        _cost("lost", incident.lost_s, gpus, "against a healthy job"),
        _cost("paid", incident.paid_s, gpus, "of that, for what was done about it"),
        _cost("saved (estimated)", saved, gpus, "what more it would have cost, had nothing been done"),
    )


def _cost(name: str, seconds: float, gpus: int, note: str) -> Cost:
    return Cost(name, say_span(seconds), say_gpu_h(seconds * gpus / _HOUR_S), note)


def _blame(suspect: Suspect) -> Blamed:
    numbers = []
    if suspect.slowdown is not None:
        numbers.append(f"{say_times(suspect.slowdown)} as long as without the fault")
    if suspect.cost_s is not None:
        numbers.append(f"cost the job {say_span(suspect.cost_s)} so far")
    if suspect.victims:
        count = len(suspect.victims)
        numbers.append(f"{count} {'rank waits' if count == 1 else 'ranks wait'} for it")
    return Blamed(tell_suspect(suspect), tuple(numbers), tuple(suspect.evidence))
