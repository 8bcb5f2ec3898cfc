"""Add new summary rows to what is kept of those before: read, add, write back.

The caller holds the lock of every run that is concerned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from holdfast.serve.store import tables
from holdfast.serve.store.incoming import Row
from holdfast.serve.store.parts import WIDTHS_S, Part, newest, pack, pack_latest, unpack, unpack_latest
from holdfast.serve.store.statements import put, some

_NEVER_US = -(1 << 62)


Nodes = Mapping[tuple[int, int], sa.RowMapping]
"""By run and node."""


def find_nodes(connection: sa.Connection, places: Iterable[tuple[int, int]]) -> Nodes:
    """Return what is kept of nodes."""
    nodes, found = tables.nodes.c, {}
    for part in some(places):
        query = sa.select(tables.nodes).where(sa.tuple_(nodes.run, nodes.node).in_(part))
        found.update({(row["run"], row["node"]): row for row in connection.execute(query).mappings()})
    return found


def add_to_nodes(
    connection: sa.Connection, known: Nodes, rows: Mapping[tuple[int, int], list[Row]]
) -> Counter[int]:
    """Note what each node's ranks did last; return how many nodes were new, by run."""
    changed = []
    for (run, node), new in sorted(rows.items()):
        old = known.get((run, node))
        if old is not None and not new:
            continue
        latest = unpack_latest(old["latest"]) if old else {}
        for row in new:
            latest = newest(latest, row.latest)
        times_us = [row.at_us for row in new] + [old["newest_us"] if old else _NEVER_US]
        changed.append(
            {
                "run": run,
                "node": node,
                "newest_us": max(times_us),
                "floor_us": old["floor_us"] if old else _NEVER_US,
                "latest": pack_latest(latest),
            }
        )
    put(connection, tables.nodes, changed)
    return Counter(run for run, node in rows if (run, node) not in known)


def add_to_pace(connection: sa.Connection, rows: Iterable[tuple[int, Row]]) -> None:
    """Count each row in its buckets."""
    new: dict[_Bucket, Part] = {}
    for run, row in rows:
        if row.part.bins:
            for width_s in WIDTHS_S:
                bucket = run, width_s, row.at_us // (width_s * 1_000_000)
                new[bucket] = new[bucket].add(row.part) if bucket in new else row.part
    for bucket, part in _find_buckets(connection, new):
        new[bucket] = part.add(new[bucket])
    changed = [
        {"run": run, "width_s": width_s, "bucket": number, "part": pack(part)}
        for (run, width_s, number), part in sorted(new.items(), key=lambda each: each[0])
    ]
    put(connection, tables.pace, changed)


_Bucket = tuple[int, int, int]
"""Run, width, and number."""


def _find_buckets(connection: sa.Connection, buckets: Iterable[_Bucket]) -> list[tuple[_Bucket, Part]]:
    pace, found = tables.pace.c, []
    for part in some(buckets):
        query = sa.select(pace.run, pace.width_s, pace.bucket, pace.part)
        wanted = sa.tuple_(pace.run, pace.width_s, pace.bucket).in_(part)
        for run, width_s, number, data in connection.execute(query.where(wanted)):
            found.append(((run, width_s, number), unpack(data)))
    return found
