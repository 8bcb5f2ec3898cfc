"""Bring a database's tables to what this version expects; a newer version's are refused."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from holdfast.errors import InputError

_LOCK_NUMBER = 0x686F6C6466617374
"""Of PostgreSQL's advisory lock: "holdfast"."""
_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps what it is doing in globals."""


def migrate(connection: sa.Connection, shown: str) -> None:
    """Migrate inside the connection's transaction, which for SQLite must have begun as a writer's."""
    if connection.dialect.name == "postgresql":  # Two servers that start at once take turns.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        scripts = ScriptDirectory.from_config(config)
        current = MigrationContext.configure(connection).get_current_revision()
        if current == scripts.get_current_head():
            return
        if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
            raise InputError(
                f"{shown}: written by a newer Holdfast: its tables are of version {current}, "
                f"expected at most {scripts.get_current_head()}"
            )
        command.upgrade(config, "head")
