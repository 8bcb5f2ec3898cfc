"""What Alembic runs to migrate; the connection, its transaction and its lock are the caller's."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
