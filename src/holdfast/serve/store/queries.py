"""What the store is asked most: runs, their events, their pace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from holdfast.errors import InputError
from holdfast.observe.eventlog import decode_line
from holdfast.serve.store import tables
from holdfast.serve.store.incoming import clean, iso, microseconds
from holdfast.serve.store.parts import LASTING_S, WIDTHS_S, Part, unpack, unpack_latest
from holdfast.serve.store.rundata import run_row
from holdfast.serve.store.values import Kept, PacePoint, RankPace, RunRow

_RUN = tables.runs.c
_MOST = (1 << 63) - 1
_AT_A_TIME = 100
"""Events, where their size is to be bounded."""

# Made once: for one of hundreds of runs of a list, to make them takes longer than to have them answered.
_MINE = sa.select(_RUN.id).where(_RUN.key == sa.bindparam("key")).scalar_subquery()
"""The number by which all other tables know a run."""
_RUN_OF = sa.select(tables.runs).where(_RUN.key == sa.bindparam("key"))
_LINES = (
    sa.select(tables.events.c.number, tables.events.c.body)
    .where(tables.events.c.run == _MINE, tables.events.c.number > sa.bindparam("after"))
    .order_by(tables.events.c.number)
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)
_LAST_LINES = (
    sa.select(tables.events.c.number, tables.events.c.body)
    .where(tables.events.c.run == _MINE)
    .order_by(tables.events.c.number.desc())
    .offset(sa.bindparam("skip", type_=sa.BigInteger))
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)
_LATEST = sa.select(tables.nodes.c.node, tables.nodes.c.latest).where(tables.nodes.c.run == _MINE)
_EXTENTS = sa.select(
    *(
        sa.select(of(tables.pace.c.bucket))
        .where(tables.pace.c.run == _MINE, tables.pace.c.width_s == width_s)
        .scalar_subquery()
        for width_s in WIDTHS_S
        for of in (sa.func.min, sa.func.max)
    )
)
_BUCKETS = sa.select(tables.pace.c.bucket, tables.pace.c.part).where(
    tables.pace.c.run == _MINE,
    tables.pace.c.width_s == sa.bindparam("width_s"),
    tables.pace.c.bucket >= sa.bindparam("first"),
)


def find_runs(connection: sa.Connection, text: str, limit: int, before: str | None) -> list[RunRow]:
    """Return those whose name, host or command has the text in it, whom the store heard last first."""
    query = sa.select(tables.runs).order_by(_RUN.heard_at.desc(), _RUN.id.desc()).limit(limit)
    if before is not None:
        query = query.where(_RUN.heard_at < clean(before))
    if text:
        columns = (_RUN.name, _RUN.key, _RUN.run_id, _RUN.host, _RUN.command)
        wanted = clean(text).lower()
        query = query.where(sa.or_(*(sa.func.lower(c).contains(wanted, autoescape=True) for c in columns)))
    return [run_row(row) for row in connection.execute(query).mappings()]


def find_run(connection: sa.Connection, key: str) -> RunRow | None:
    """Return the one with this key."""
    row = connection.execute(_RUN_OF, {"key": clean(key)}).mappings().first()
    return None if row is None else run_row(row)


def run_number(connection: sa.Connection, key: str) -> int | None:
    """Return the number by which all other tables know a run."""
    return connection.execute(sa.select(_RUN.id).where(_RUN.key == clean(key))).scalar()


def find_records(
    connection: sa.Connection, key: str, after: int, limit: int, most_bytes: int | None = None
) -> list[Kept]:
    """Return a run's events whose number is higher, in order; up to so many bytes, but at least one.

    Without a limit of bytes, fewer than so many are all that there are.
    """
    found: list[Kept] = []
    while len(found) < limit:
        most = limit - len(found) if most_bytes is None else min(limit - len(found), _AT_A_TIME)
        rows = _find_lines(connection, key, after, most)
        for number, body in rows:
            if most_bytes is not None:
                most_bytes -= len(body)
                if found and most_bytes < 0:
                    return found
            found += _decode(number, body)
        if len(rows) < most:
            break
        after = rows[-1][0]
    return found


def find_last_records(connection: sa.Connection, key: str, skip: int, limit: int) -> list[Kept]:
    """Return a run's events, the newest first."""
    asked = {"key": clean(key), "skip": min(skip, _MOST), "most": min(limit, _MOST)}
    rows = connection.execute(_LAST_LINES, asked)
    return [kept for number, body in rows for kept in _decode(number, body)]


def _find_lines(connection: sa.Connection, key: str, after: int, limit: int) -> list[tuple[int, str]]:
    asked = {"key": clean(key), "after": min(after, _MOST), "most": min(limit, _MOST)}
    return [(number, body) for number, body in connection.execute(_LINES, asked)]


def _decode(number: int, body: str) -> list[Kept]:
    try:
        return [Kept(number=number, record=decode_line(body.encode()))]
    # It could be read when it was taken: by a newer version, on the same tables, or with more room to call.
    except (ValueError, RecursionError):
        return []


def find_ranks(connection: sa.Connection, key: str) -> list[RankPace]:
    """Return the latest of each rank, wherever it was then."""
    found = [
        (rank, latest.at_us, -node, latest)
        for node, data in connection.execute(_LATEST, {"key": clean(key)})
        for rank, latest in unpack_latest(data).items()
    ]
    newest = {rank: (-minus_node, latest) for rank, _, minus_node, latest in sorted(found, key=_by_time)}
    return [
        RankPace(
            rank=rank,
            node=node,
            step=latest.step,
            step_s=latest.step_us / 1e6,
            own_s=None if latest.own_us is None else latest.own_us / 1e6,
            at=iso(latest.at_us),
        )
        for rank, (node, latest) in newest.items()
    ]


def _by_time(item: tuple[int, int, int, object]) -> tuple[int, int, int]:
    return item[:3]


# --- pace -------------------------------------------------------------------------------------


def find_pace(connection: sa.Connection, key: str, points: int, since: str | None) -> list[PacePoint]:
    """Return at most so many points over the time of the run, or since then."""
    kept = _extents(connection, key)
    span = _span(kept, since)
    if span is None or points < 1:
        return []
    start, end = span
    width_s = _width(kept, span, points)
    group_s = _group(start, end, width_s, points)
    groups: dict[int, Part] = {}
    asked = {"key": clean(key), "width_s": width_s, "first": start // width_s}
    for bucket, data in connection.execute(_BUCKETS, asked):
        group, part = bucket * width_s // group_s, unpack(data)
        groups[group] = groups[group].add(part) if group in groups else part
    return _points(groups.items(), group_s)


def _extents(connection: sa.Connection, key: str) -> dict[int, tuple[int, int]]:
    """Return the first and the last bucket of each width that there is something of: in one question."""
    found = connection.execute(_EXTENTS, {"key": clean(key)}).one()
    pairs = zip(WIDTHS_S, found[::2], found[1::2], strict=True)
    return {width_s: (first, last) for width_s, first, last in pairs if first is not None}


def _span(kept: Mapping[int, tuple[int, int]], since: str | None) -> tuple[int, int] | None:
    """Return the first and the last second that there is something of."""
    if LASTING_S not in kept:
        return None
    first, last = kept[LASTING_S]
    start = first * LASTING_S if since is None else max(first * LASTING_S, _seconds(since))
    # Exactly, where there are single seconds; they are removed first.
    _, last_s = kept.get(WIDTHS_S[0], (0, 0))
    end = max(last * LASTING_S, last_s)
    return (start, end) if start <= end else None


def _seconds(since: str) -> int:
    try:
        return -(-microseconds(since) // 1_000_000)
    except ValueError as error:
        raise InputError(f"since is {since[:40]!r}, expected a time in ISO 8601: {error}") from None


def _width(kept: Mapping[int, tuple[int, int]], span: tuple[int, int], points: int) -> int:
    """Return the widest that is fine enough; where none is, the finest that goes back to the start."""
    start, end = span
    there = [width_s for width_s, (first, _) in kept.items() if first * width_s < start + LASTING_S]
    fine = [width_s for width_s in there if (end - start) / width_s >= points / 2]
    return max(fine, default=min(there, default=LASTING_S))


def _group(start: int, end: int, width_s: int, points: int) -> int:
    """Return how many seconds go into one point."""
    group_s = width_s
    while end // group_s - start // group_s + 1 > points:
        # Close to what is needed at once, then in steps of one bucket.
        needed = (end - start) // points // width_s * width_s
        group_s = max(group_s + width_s, needed)
    return group_s


def _points(groups: Iterable[tuple[int, Part]], group_s: int) -> list[PacePoint]:
    return [
        PacePoint(
            at=iso(group * group_s * 1_000_000),
            step=part.step,
            step_s=round(part.median_s, 6),
            slowest_s=part.slowest_us / 1e6,
            slowest_rank=part.slowest_rank,
            ranks=part.ranks.bit_count(),
        )
        for group, part in sorted(groups)
    ]
