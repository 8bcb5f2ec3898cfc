"""Buckets of ten minutes, for runs that last weeks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.serve.store.parts import Part, pack, unpack

revision = "2"
down_revision = "1"

_FROM_S, _TO_S = 60, 600
_PACE = sa.table(
    "pace", *(sa.column(name) for name in ("run", "width_s", "bucket")), sa.column("part", sa.LargeBinary)
)


def upgrade() -> None:
    """Add up what there is, run by run."""
    connection = op.get_bind()
    runs = (
        connection.execute(sa.select(_PACE.c.run).where(_PACE.c.width_s == _FROM_S).distinct())
        .scalars()
        .all()
    )
    for run in sorted(runs):
        found: dict[int, Part] = {}
        minutes = sa.select(_PACE.c.bucket, _PACE.c.part).where(
            _PACE.c.run == run, _PACE.c.width_s == _FROM_S
        )
        for bucket, data in connection.execute(minutes.order_by(_PACE.c.bucket)):
            wide = bucket * _FROM_S // _TO_S
            found[wide] = found.get(wide, Part()).add(unpack(data))
        rows = [
            {"run": run, "width_s": _TO_S, "bucket": wide, "part": pack(part)}
            for wide, part in sorted(found.items())
        ]
        connection.execute(sa.insert(_PACE), rows)
