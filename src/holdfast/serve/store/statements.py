"""Statements that both databases understand, each in its own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

MOST_AT_ONCE = 1000
"""Values in one ``IN``; databases have a limit."""

Values = Mapping[str, Any]


def insert_new(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Values], names: Sequence[str]
) -> set[tuple[Any, ...]]:
    """Insert the rows that are not there yet; return the named columns of those."""
    if not rows:
        return set()
    statement = _insert(connection, table).on_conflict_do_nothing()
    answer = connection.execute(statement.returning(*(table.c[name] for name in names)), rows)
    return {tuple(row) for row in answer}


def put(connection: sa.Connection, table: sa.Table, rows: Sequence[Values]) -> None:
    """Insert rows, in place of those with the same primary key."""
    if not rows:
        return
    statement = _insert(connection, table)
    keys = [column.name for column in table.primary_key]
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    # Without RETURNING every row would be a round trip of its own to PostgreSQL.
    answer = connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=others).returning(sa.literal(1)), rows
    )
    answer.close()


def some(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the values, few enough at a time for one statement."""
    rest = sorted(values)
    for start in range(0, len(rest), MOST_AT_ONCE):
        yield rest[start : start + MOST_AT_ONCE]


def _insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)
