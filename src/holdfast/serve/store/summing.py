"""Add new summary rows to what is kept of those before: read, add, write back.

The caller holds the lock of every run that is concerned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

import sqlalchemy as sa

from holdfast.serve.store import tables
from holdfast.serve.store.incoming import Row
from holdfast.serve.store.parts import WIDTHS_S, Part, newest, pack, pack_latest, unpack, unpack_latest
from holdfast.serve.store.statements import put, some

_NEVER_US = -(1 << 62)


def floors(connection: sa.Connection, places: Collection[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return, by run and node, the time up to which rows are taken for known."""
    return {place: row["floor_us"] for place, row in _nodes(connection, places).items()}


def add_to_nodes(connection: sa.Connection, rows: Mapping[tuple[int, int], list[Row]]) -> Counter[int]:
    """Note what each node's ranks did last; return how many nodes were new, by run."""
    known = _nodes(connection, rows)
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
    new: dict[tuple[int, int], dict[int, Part]] = defaultdict(dict)
    for run, row in rows:
        if row.part.bins:
            for width_s in WIDTHS_S:
                buckets, bucket = new[run, width_s], row.at_us // (width_s * 1_000_000)
                buckets[bucket] = buckets.get(bucket, Part()).add(row.part)
    changed = []
    for (run, width_s), buckets in sorted(new.items()):
        for bucket, part in _buckets(connection, run, width_s, buckets):
            buckets[bucket] = part.add(buckets[bucket])
        for bucket, part in sorted(buckets.items()):
            changed.append({"run": run, "width_s": width_s, "bucket": bucket, "part": pack(part)})
    put(connection, tables.pace, changed)


def _nodes(
    connection: sa.Connection, places: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], sa.RowMapping]:
    wanted: dict[int, set[int]] = defaultdict(set)
    for run, node in places:
        wanted[run].add(node)
    nodes, found = tables.nodes.c, {}
    for run, numbers in sorted(wanted.items()):
        for part in some(numbers):
            query = sa.select(tables.nodes).where(nodes.run == run, nodes.node.in_(part))
            found.update({(run, row["node"]): row for row in connection.execute(query).mappings()})
    return found


def _buckets(
    connection: sa.Connection, run: int, width_s: int, numbers: Iterable[int]
) -> list[tuple[int, Part]]:
    pace, found = tables.pace.c, []
    for part in some(numbers):
        query = sa.select(pace.bucket, pace.part).where(
            pace.run == run, pace.width_s == width_s, pace.bucket.in_(part)
        )
        found += [(bucket, unpack(data)) for bucket, data in connection.execute(query)]
    return found
