"""How much there is, and how much room it takes."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from holdfast.serve.store import tables
from holdfast.serve.store.values import StoreSize

_OVERHEAD = {tables.events: 150, tables.pace: 80, tables.nodes: 80, tables.seen: 60}
"""Bytes of a row besides its largest column, in the table and its indexes, about."""
_LARGEST = {tables.events: "body", tables.pace: "part", tables.nodes: "latest"}


def measure(connection: sa.Connection, file: Path | None) -> StoreSize:
    """Count everything."""
    runs = tables.runs.c
    total = sa.select(sa.func.count(), sa.func.sum(runs.events), sa.func.sum(runs.rows))
    count, events, rows = connection.execute(total).one()
    size_bytes = _on_disk(connection) if file is None else _file_bytes(file)
    return StoreSize(runs=count, events=int(events or 0), rows=int(rows or 0), bytes=size_bytes)


def used_bytes(connection: sa.Connection) -> int:
    """Return what the content needs, without the space that is free to be used again."""
    if connection.dialect.name == "sqlite":
        count, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((count - free) * size)
    return run_bytes(connection, None)


def run_bytes(connection: sa.Connection, run: int | None) -> int:
    """Return about what a run needs, or all of them: PostgreSQL's files do not shrink with their content."""
    found = 0
    for table, overhead in _OVERHEAD.items():
        largest = sa.func.octet_length(table.c[_LARGEST[table]]) if table in _LARGEST else sa.literal(0)
        query = sa.select(sa.func.coalesce(sa.func.sum(largest + overhead), 0))
        found += int(
            connection.execute(query if run is None else query.where(table.c.run == run)).scalar_one()
        )
    return found


def _on_disk(connection: sa.Connection) -> int:
    sizes = [
        connection.execute(sa.select(sa.func.pg_total_relation_size(name))).scalar_one()
        for name in tables.METADATA.tables
    ]
    return int(sum(sizes))


def _file_bytes(file: Path) -> int:
    files = [file, file.with_name(f"{file.name}-wal")]
    return sum(path.stat().st_size for path in files if path.exists())
