"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_Big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _run() -> sa.Column[int]:
    return sa.Column("run", _Big, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False)


def upgrade() -> None:
    """Make them."""
    _make_runs()
    _make_events()
    _make_rows()
    _make_orders()


def _make_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", _Big, primary_key=True, autoincrement=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("versions", sa.Text, nullable=False),
        sa.Column("told_by", sa.Integer, nullable=False),
        sa.Column("heard_at", sa.Text, nullable=False, index=True),
        sa.Column("step", _Big, nullable=False),
        sa.Column("step_us", _Big, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("events", _Big, nullable=False),
        sa.Column("rows", _Big, nullable=False),
        sqlite_autoincrement=True,
    )


def _make_events() -> None:
    op.create_table(
        "events",
        sa.Column("number", _Big, primary_key=True, autoincrement=True),
        _run(),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("run", "event_id", name="events_once"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_in_order", "events", ["run", "number"])


def _make_rows() -> None:
    op.create_table(
        "seen",
        _run(),
        sa.Column("at_us", _Big, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run", "at_us", "node"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "nodes",
        _run(),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("newest_us", _Big, nullable=False),
        sa.Column("floor_us", _Big, nullable=False),
        sa.Column("latest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run", "node"),
    )
    op.create_table(
        "pace",
        _run(),
        sa.Column("width_s", sa.Integer, nullable=False),
        sa.Column("bucket", _Big, nullable=False),
        sa.Column("part", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run", "width_s", "bucket"),
    )


def _make_orders() -> None:
    op.create_table(
        "orders",
        sa.Column("number", _Big, primary_key=True, autoincrement=True),
        _run(),
        sa.Column("order_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.UniqueConstraint("run", "order_id", name="orders_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sent",
        _run(),
        sa.Column("incident_id", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "incident_id", "stage"),
    )
