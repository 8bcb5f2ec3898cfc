"""Of summary rows, forget what is no longer needed: which old ones were seen, and how single seconds were.

A node sends its rows in order, so one that comes long after a newer one of the same node can only be a
repeated one: up to a floor all are taken for known, and need not be remembered one by one.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import sqlalchemy as sa

from holdfast.serve.store import tables
from holdfast.serve.store.database import Database
from holdfast.serve.store.incoming import microseconds

_RUN, _NODE, _SEEN, _PACE = tables.runs.c, tables.nodes.c, tables.seen.c, tables.pace.c


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """For how long what is kept, counted back from the newest row."""

    seen_s: int
    width_s: dict[int, int]
    """By the width of the buckets; those that are not named stay."""


USUAL = Spans(seen_s=15 * 60, width_s={1: 6 * 3600, 10: 3 * 24 * 3600})
HARD = Spans(seen_s=60, width_s={1: 600, 10: 3600})
_SILENT = timedelta(days=1)


def thin(database: Database, spans: Spans, now: datetime) -> None:
    """Do so for every run, each in a transaction of its own."""
    with database.read() as connection:
        runs = connection.execute(sa.select(_RUN.id, _RUN.heard_at).order_by(_RUN.id)).all()
    now_us = microseconds(now.isoformat())
    silent_at = (now - _SILENT).isoformat(timespec="microseconds")
    for run, heard_at in runs:
        # Of a run that has been silent for long, nothing is under way.
        own = msgspec.structs.replace(spans, seen_s=0) if heard_at < silent_at else spans
        if _has_more(database, own, run, now_us):
            with database.write() as connection:
                connection.execute(sa.select(_RUN.id).where(_RUN.id == run).with_for_update())
                _forget_seen(connection, own, run, now_us)
                _forget_buckets(connection, own, run)


def _has_more(database: Database, spans: Spans, run: int, now_us: int) -> bool:
    """Return whether there is something to forget: most runs ended long ago."""
    with database.read() as connection:
        first_us = connection.execute(sa.select(sa.func.min(_SEEN.at_us)).where(_SEEN.run == run)).scalar()
        return (first_us is not None and first_us < now_us - spans.seen_s * 1_000_000) or any(
            first < last - span_s // width_s
            for width_s, span_s in spans.width_s.items()
            for first, last in [_bounds(connection, run, width_s)]
        )


def _forget_seen(connection: sa.Connection, spans: Spans, run: int, now_us: int) -> None:
    # A clock that was ahead once must not make all later rows known.
    newest_us = sa.case((_NODE.newest_us > now_us, now_us), else_=_NODE.newest_us)
    floor_us = newest_us - spans.seen_s * 1_000_000
    connection.execute(
        sa.update(tables.nodes).where(_NODE.run == run, floor_us > _NODE.floor_us).values(floor_us=floor_us)
    )
    own_floor = (
        sa.select(_NODE.floor_us)
        .where(_NODE.run == _SEEN.run, _NODE.node == _SEEN.node)
        .correlate(tables.seen)
        .scalar_subquery()
    )
    highest = sa.select(sa.func.max(_NODE.floor_us)).where(_NODE.run == run).scalar_subquery()
    connection.execute(
        sa.delete(tables.seen).where(_SEEN.run == run, _SEEN.at_us <= highest, _SEEN.at_us <= own_floor)
    )


def _forget_buckets(connection: sa.Connection, spans: Spans, run: int) -> None:
    for width_s, span_s in spans.width_s.items():
        _, last = _bounds(connection, run, width_s)
        old = (_PACE.run == run) & (_PACE.width_s == width_s) & (_PACE.bucket < last - span_s // width_s)
        connection.execute(sa.delete(tables.pace).where(old))


def _bounds(connection: sa.Connection, run: int, width_s: int) -> tuple[int, int]:
    bounds = sa.select(sa.func.min(_PACE.bucket), sa.func.max(_PACE.bucket))
    first, last = connection.execute(bounds.where(_PACE.run == run, _PACE.width_s == width_s)).one()
    return (first, last) if first is not None else (0, 0)
