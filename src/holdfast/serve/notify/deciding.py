"""What is worth a message: a run as it was and as it is in, messages out. Pure.

Each incident is told four times at most: when it opened, when somebody was named, when something was done,
and when it closed. An incident of the same kind and ranks that opens again soon after is not told by itself:
all that returned are one message with a count, which whoever sends keeps from coming too often.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from holdfast.incidents.values import Incident, IncidentKind, RunView, Stage

Told = Literal["opened", "named", "mitigated", "closed", "again"]

YOUNG = timedelta(minutes=15)
"""What happened longer ago is history: a server that meets an old run says nothing of it."""
RETURN = timedelta(minutes=10)
"""An incident that opens so soon after another one has closed is its return."""
_LOOK_BACK = 32
"""Chains in which an incident is looked for; more do not go on at a time."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to say."""

    incident_id: str
    """Of the first, where incidents returned."""
    mark: str
    """By which it is known whether it was sent already."""
    told: Told
    kind: IncidentKind
    at: str
    words: str
    """What happened."""
    count: int = 1
    """How often it was there by now."""
    is_open: bool = True
    ranks: tuple[int, ...] = ()
    lost_s: float = 0.0
    paid_s: float = 0.0
    saved_s: float = 0.0
    gpus: int = 0


def what_to_send(before: RunView | None, after: RunView, *, now: datetime) -> list[Message]:
    """Return what is to be said of the difference; without a ``before``, of all that is young."""
    known = {each.incident_id: each for each in before.incidents} if before is not None else {}
    found: list[Message] = []
    for chain in find_chains(after.incidents):
        first = chain[0]
        found += _tell_one(known.get(first.incident_id), first, gpus=after.world_size)
        if len(chain) > 1 and known.get(chain[-1].incident_id) != chain[-1]:
            found.append(_tell_again(chain, gpus=after.world_size))
    return [message for message in found if is_young(message.at, now)]


def is_young(at: str, now: datetime) -> bool:
    """Say whether it happened lately; what cannot be dated did not."""
    moment = read_moment(at)
    return moment is not None and now - moment <= YOUNG


def find_chains(incidents: Sequence[Incident]) -> list[list[Incident]]:
    """Return incidents, each with those that returned soon after it had closed."""
    chains: list[list[Incident]] = []
    for incident in incidents:
        chain = next(
            (each for each in reversed(chains[-_LOOK_BACK:]) if _is_return(each[-1], incident)), None
        )
        if chain is None:
            chains.append([incident])
        else:
            chain.append(incident)
    return chains


def _is_return(last: Incident, incident: Incident) -> bool:
    if last.kind != incident.kind or last.closed_at is None:
        return False
    closed, opened = read_moment(last.closed_at), read_moment(incident.opened_at)
    if closed is None or opened is None or opened - closed > RETURN:
        return False
    # Who it is may not be known yet; if it turns out to be somebody else, it is told by itself from then on.
    return last.ranks == incident.ranks or not incident.ranks or not last.ranks


def _tell_one(before: Incident | None, after: Incident, *, gpus: int) -> Iterator[Message]:
    was_told = {told for told, _ in _moments(before)} if before is not None else frozenset[Told]()
    for told, stage in _moments(after):
        if told not in was_told:
            yield _fill(after, told, stage, gpus=gpus)


def _moments(incident: Incident) -> Iterator[tuple[Told, Stage]]:
    """Yield what is told of it, each with the first time that it was so; of the end, the last."""
    stages = incident.stages
    firsts: list[tuple[Told, Stage | None]] = [
        ("opened", stages[0] if stages else None),
        ("named", next((each for each in stages if each.name == "named"), None)),
        ("mitigated", next((each for each in stages if each.name == "done"), None)),
        ("closed", next((each for each in reversed(stages) if each.name == "closed"), None)),
    ]
    for told, stage in firsts:
        if stage is not None:
            yield told, stage


def _fill(incident: Incident, told: Told, stage: Stage, *, gpus: int) -> Message:
    return Message(
        incident_id=incident.incident_id,
        mark=told,
        told=told,
        kind=incident.kind,
        at=stage.at,
        words=stage.words,
        is_open=incident.is_open,
        ranks=incident.ranks,
        lost_s=incident.lost_s,
        paid_s=incident.paid_s,
        saved_s=incident.saved_s,
        gpus=gpus,
    )


def _tell_again(chain: Sequence[Incident], *, gpus: int) -> Message:
    last, count = chain[-1], len(chain)
    state = "open" if last.is_open else "closed"
    return Message(
        incident_id=chain[0].incident_id,
        mark=f"again {count} {state}",
        told="again",
        kind=last.kind,
        at=last.closed_at or last.opened_at,
        words=last.stages[0].words if last.stages else "",
        count=count,
        is_open=last.is_open,
        ranks=last.ranks,
        lost_s=sum(each.lost_s for each in chain),
        paid_s=sum(each.paid_s for each in chain),
        saved_s=sum(each.saved_s for each in chain),
        gpus=gpus,
    )


def read_moment(at: str) -> datetime | None:
    """Return when it was; None where that is no time with an offset."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
