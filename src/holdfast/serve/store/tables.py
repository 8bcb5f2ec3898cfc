"""The tables, as the newest migration leaves them.

Only ``events`` is kept row by row. Of summary rows the store keeps what they add up to (``pace``), the latest
of each rank (``nodes.latest``), and for a while which ones it has had (``seen``).
"""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

_Big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite numbers rows by itself only where the type is called INTEGER."""


def _run() -> sa.Column[int]:
    return sa.Column("run", _Big, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False)


runs = sa.Table(
    "runs",
    METADATA,
    sa.Column("id", _Big, primary_key=True, autoincrement=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),  # JSON
    sa.Column("versions", sa.Text, nullable=False),  # JSON
    sa.Column("told_by", sa.Integer, nullable=False),  # Lowest node that said the above.
    sa.Column("heard_at", sa.Text, nullable=False, index=True),
    sa.Column("step", _Big, nullable=False),
    sa.Column("step_us", _Big, nullable=False),  # Time of the row that the step is from.
    sa.Column("nodes", sa.Integer, nullable=False),
    sa.Column("events", _Big, nullable=False),
    sa.Column("rows", _Big, nullable=False),
    sqlite_autoincrement=True,
)

events = sa.Table(
    "events",
    METADATA,
    sa.Column("number", _Big, primary_key=True, autoincrement=True),
    _run(),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # The line, as it came.
    sa.UniqueConstraint("run", "event_id", name="events_once"),
    sa.Index("events_in_order", "run", "number"),
    # A number is never given twice, also when the last event has been removed.
    sqlite_autoincrement=True,
)

seen = sa.Table(
    "seen",
    METADATA,
    _run(),
    sa.Column("at_us", _Big, nullable=False),  # Before the node: what comes together lies together.
    sa.Column("node", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("run", "at_us", "node"),
    sqlite_with_rowid=False,
)

nodes = sa.Table(
    "nodes",
    METADATA,
    _run(),
    sa.Column("node", sa.Integer, nullable=False),
    sa.Column("newest_us", _Big, nullable=False),  # Of its rows.
    sa.Column("floor_us", _Big, nullable=False),  # Rows up to here are taken for known.
    sa.Column("latest", sa.LargeBinary, nullable=False),  # Of each of its ranks.
    sa.PrimaryKeyConstraint("run", "node"),
)

pace = sa.Table(
    "pace",
    METADATA,
    _run(),
    sa.Column("width_s", sa.Integer, nullable=False),
    sa.Column("bucket", _Big, nullable=False),  # Begins at bucket * width_s, seconds since 1970.
    sa.Column("part", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("run", "width_s", "bucket"),
)

orders = sa.Table(
    "orders",
    METADATA,
    sa.Column("number", _Big, primary_key=True, autoincrement=True),
    _run(),
    sa.Column("order_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON
    sa.Column("outcome", sa.Text, nullable=True),  # NULL while nobody has answered.
    sa.UniqueConstraint("run", "order_id", name="orders_once"),
    sqlite_autoincrement=True,
)

sent = sa.Table(
    "sent",
    METADATA,
    _run(),
    sa.Column("incident_id", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("run", "incident_id", "stage"),
)
