"""Shipments to take, and what a store holds as one value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.guard.eventlog import encode
from holdfast.serve.store import PacePoint, RankPace, RunRow, Store
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary
from holdfast.values import AnyEvent, Ordered, Stamp, StepSeen

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
RUN = Run(key="k1", name="20261115-120000-f21a")


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now = NOON + timedelta(hours=1)

    def __call__(self) -> datetime:
        return self.now

    def turn(self, **by: float) -> None:
        """Let so much time pass."""
        self.now += timedelta(**by)


def at(second: float) -> str:
    """Return a time of the run."""
    return (NOON + timedelta(seconds=second)).isoformat()


def line(event_id: str, event: AnyEvent | None = None, *, node: int = 0, second: float = 0) -> msgspec.Raw:
    """Return a line of an event log."""
    stamp = Stamp(schema=1, event_id=event_id, at=at(second), host="h", node=node, attempt=0)
    return msgspec.Raw(encode(stamp, event or StepSeen(rank=0, step=1)).rstrip(b"\n"))


def answer(event_id: str, order: str, outcome: str = "done") -> msgspec.Raw:
    """Return the line that tells what came of an order."""
    return line(event_id, Ordered(order=order, what="act", who="me", outcome=outcome, is_done=True))


def row(second: float, times_s: dict[int, float], *, node: int = 0, step: int = 1) -> Summary:
    """Return a summary row."""
    times = {str(rank): time_s for rank, time_s in times_s.items()}
    return Summary(at=at(second), node=node, attempt=0, steps=dict.fromkeys(times, step), duration_s=times)


def ship(
    events: Sequence[msgspec.Raw] = (), rows: Sequence[Summary] = (), *, node: int = 0, run: Run = RUN
) -> Shipment:
    """Return a shipment of one node."""
    return Shipment(run=run, node=node, events=list(events), summaries=list(rows))


def ids(store: Store, key: str = RUN.key) -> list[str]:
    """Return the ids of a run's events, in the order of the store."""
    return [kept.record.stamp.event_id for kept in store.records(key)]


class Content(msgspec.Struct, frozen=True):
    """All that a store tells of a run, without when and in which order it heard of it."""

    run: RunRow | None
    events: list[Any]
    pace: list[PacePoint]
    ranks: list[RankPace]
    outcomes: list[str]


def content(store: Store, key: str = RUN.key) -> Content:
    """Return it."""
    run = store.run(key)
    return Content(
        run=None if run is None else msgspec.structs.replace(run, heard_at=""),
        events=sorted((kept.record for kept in store.records(key)), key=lambda r: r.stamp.event_id),
        pace=store.pace(key),
        ranks=store.ranks(key),
        outcomes=[outcome for _, outcome in store.all_orders(key)],
    )
