"""Remove what is too old or too much: whole runs first, of a run that lives only what size demands.

Each removal is a transaction of its own, so that guards are not kept waiting. Unanswered orders stay.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import msgspec
import sqlalchemy as sa

from holdfast.serve.store import tables
from holdfast.serve.store.database import Database
from holdfast.serve.store.measuring import run_bytes, used_bytes
from holdfast.serve.store.thinning import HARD, USUAL, thin

ALIVE = timedelta(hours=1)
"""A run that was heard of since then lives."""
MOST_AT_ONCE = 1000
"""Events of living runs that are removed before looking again."""

_RUN = tables.runs.c
_OF_A_RUN = (tables.events, tables.seen, tables.nodes, tables.pace, tables.sent)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may stay."""

    max_age_s: float | None
    """Since a run was heard of."""
    max_bytes: int | None


def trim(database: Database, limits: Limits, now: datetime) -> int:
    """Remove what is over the limits; return how many events and summary rows that were."""
    removed = 0
    if limits.max_age_s is not None:
        oldest = now - max(timedelta(seconds=min(limits.max_age_s, _LONG_S)), ALIVE)
        for run in _silent_since(database, oldest):
            removed += _remove_run(database, run, oldest)
    thin(database, USUAL, now)
    if limits.max_bytes is not None:
        removed += _shrink(database, limits.max_bytes, now)
    database.give_back()
    return removed


_LONG_S = 1e9


def _silent_since(database: Database, moment: datetime) -> list[int]:
    query = sa.select(_RUN.id).where(_RUN.heard_at < _text(moment)).order_by(_RUN.heard_at)
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def _remove_run(database: Database, run: int, oldest: datetime) -> int:
    """Remove a run unless it has spoken again; what is left for an open order is its name."""
    with database.write() as connection:
        query = sa.select(_RUN.events, _RUN.rows).where(_RUN.id == run, _RUN.heard_at < _text(oldest))
        counts = connection.execute(query.with_for_update()).first()
        if counts is None:
            return 0
        orders = tables.orders.c
        waiting = sa.select(orders.number).where(orders.run == run, orders.outcome.is_(None)).limit(1)
        if connection.execute(waiting).first() is None:
            connection.execute(sa.delete(tables.runs).where(_RUN.id == run))
        else:
            for table in _OF_A_RUN:
                connection.execute(sa.delete(table).where(table.c.run == run))
            empty = sa.update(tables.runs).where(_RUN.id == run)
            connection.execute(empty.values(events=0, rows=0, nodes=0))
    return int(counts[0] + counts[1])


# --- by size ----------------------------------------------------------------------------------


def _shrink(database: Database, max_bytes: int, now: datetime) -> int:
    with database.read() as connection:
        over = used_bytes(connection) - max_bytes
    removed = 0
    for run in _silent_since(database, now - ALIVE):
        if over <= 0:
            return removed
        over -= _bytes_of(database, run)
        removed += _remove_run(database, run, now - ALIVE)
        over = _look_again(database, over, max_bytes)
    if over > 0:
        thin(database, HARD, now)
        over = _look_again(database, over, max_bytes)
    while over > 0:
        count, size_bytes = _remove_oldest_events(database)
        removed, over = removed + count, _look_again(database, over - size_bytes, max_bytes)
        if count == 0:
            break
    return removed


def _bytes_of(database: Database, run: int) -> int:
    if database.is_sqlite:  # It is asked afterwards.
        return 0
    with database.read() as connection:
        return run_bytes(connection, run)


def _look_again(database: Database, over: int, max_bytes: int) -> int:
    """Return by how much it is too large: SQLite knows at once, elsewhere the estimate is carried on."""
    if not database.is_sqlite:
        return over
    with database.read() as connection:
        return used_bytes(connection) - max_bytes


def _remove_oldest_events(database: Database) -> tuple[int, int]:
    """Remove some, of whichever run; return how many and their bytes."""
    events = tables.events.c
    oldest = sa.select(events.number, events.run).order_by(events.number).limit(MOST_AT_ONCE)
    with database.write() as connection:
        found = connection.execute(oldest).all()
        numbers, runs = [number for number, _ in found], sorted({run for _, run in found})
        # In the order in which takers lock them, so that nobody waits in a circle.
        connection.execute(sa.select(_RUN.id).where(_RUN.id.in_(runs)).order_by(_RUN.key).with_for_update())
        gone = connection.execute(
            sa.delete(tables.events)
            .where(events.number.in_(numbers))
            .returning(events.run, sa.func.length(events.body))
        ).all()
        for run, count in Counter(run for run, _ in gone).items():
            fewer = sa.update(tables.runs).where(_RUN.id == run).values(events=_RUN.events - count)
            connection.execute(fewer)
    return len(gone), sum(length + 150 for _, length in gone)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")
