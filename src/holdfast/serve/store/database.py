"""A database and how to talk to it: one transaction at a time to write, as many as there are to read.

Whatever goes wrong in there comes out as a ``StoreError`` of one line without a password.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from holdfast.errors import InputError, MissingError, StoreError
from holdfast.serve.store.address import Address, read_address
from holdfast.serve.store.migrate import migrate

BUSY_S = 15.0
"""How long to wait for another process that writes to the same file."""
_KEPT_OPEN = 10
"""Connections; ten more are opened where so many are in use, and closed again."""


class Database:
    """Connections to one database whose tables are up to date."""

    def __init__(self, text: str) -> None:
        self.address = read_address(text)
        self.is_sqlite = self.address.file is not None
        self._lock = threading.Lock()
        if self.is_sqlite:
            _make_file(self.address)
            self._writer = _sqlite_engine(self.address, "BEGIN IMMEDIATE")
            self._reader = _sqlite_engine(self.address, "BEGIN")
        else:
            self._writer = _postgres_engine(self.address)
            # A statement sees no half of a transaction; what is read in several need not fit to the second.
            self._reader = self._writer.execution_options(isolation_level="AUTOCOMMIT")
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of all connections."""
        self._writer.dispose()
        self._reader.dispose()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction: all of it is kept for good at the end, or nothing of it."""
        # SQLite has one writer anyway, and waits for its turn without sleeping when it is ours to give.
        turn: AbstractContextManager[object] = self._lock if self.is_sqlite else nullcontext()
        with turn, self._errors(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Look: no statement sees half of a transaction, or holds up a writer."""
        with self._errors(), self._reader.connect() as connection:
            yield connection

    def give_back(self) -> None:
        """Make SQLite's file as small as what is in it; PostgreSQL uses the space again by itself."""
        if not self.is_sqlite:
            return
        with self._lock, self._errors():
            raw = self._writer.raw_connection()
            try:
                driver = raw.driver_connection
                assert isinstance(driver, sqlite3.Connection)
                # As a script it runs to its end; as a statement it would give back one page.
                driver.executescript("PRAGMA incremental_vacuum")
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                raw.close()

    def _migrate(self) -> None:
        until = time.monotonic() + BUSY_S
        while True:
            try:
                with self._writer.begin() as connection:
                    migrate(connection, self.address.shown)
                return
            except SQLAlchemyError as error:
                # SQLite does not wait where another process is just turning a new file into a database.
                if "database is locked" not in str(error) or time.monotonic() > until:
                    raise InputError(f"{self.address.shown}: {self._reason(error)}") from None
            time.sleep(0.02)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            # What was to be written is in the error as well, and is nobody's business in a log.
            raise StoreError(f"store {self.address.shown}: {self._reason(error)}") from None

    def _reason(self, error: Exception) -> str:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        return self.address.hide(lines[0])[:300]


# --- SQLite -----------------------------------------------------------------------------------


def _make_file(address: Address) -> None:
    """Create an empty file that only its owner can read; SQLite gives its helpers the same rights."""
    assert address.file is not None
    try:
        # An existing one is not opened: closing it would take away the locks of our own connections to it.
        os.close(os.open(address.file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not address.file.is_file():  # SQLite would try for half a minute.
            raise InputError(f"{address.shown}: is no file, expected that of a database") from None
    except OSError as error:
        raise InputError(f"{address.shown}: cannot be made: {error.strerror}") from None


def _sqlite_engine(address: Address, begin: str) -> sa.Engine:
    engine = sa.create_engine(
        address.url, connect_args={"timeout": BUSY_S}, pool_timeout=BUSY_S, pool_size=_KEPT_OPEN
    )

    @sa.event.listens_for(engine, "connect")
    def _set_up(raw: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        raw.isolation_level = None  # Transactions begin below.
        cursor = raw.cursor()
        pragmas = ["synchronous=FULL", "foreign_keys=ON"]
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone() != ("wal",):
            # These write, so only a new file gets them: on a full disk one can still read. In this order:
            # the first means something only while the file is empty, and the second makes it no longer so.
            pragmas = ["auto_vacuum=INCREMENTAL", "journal_mode=WAL", *pragmas]
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


# --- PostgreSQL -------------------------------------------------------------------------------

_CONNECTING = {"connect_timeout": "10", "tcp_user_timeout": "30000", "application_name": "holdfast"}


def _postgres_engine(address: Address) -> sa.Engine:
    defaults = {name: value for name, value in _CONNECTING.items() if name not in address.url.query}
    try:
        return sa.create_engine(
            address.url,
            connect_args=defaults,
            pool_pre_ping=True,
            pool_timeout=BUSY_S,
            pool_size=_KEPT_OPEN,
        )
    except ImportError:
        raise MissingError("psycopg is missing: pip install 'holdfast[postgres]'") from None
