"""Opening a store: what is made, what is refused, and in which words."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from holdfast.errors import InputError
from holdfast.serve.store import Store
from holdfast.serve.store.address import read_address
from holdfast.serve.store.database import Database
from holdfast.serve.store.tables import METADATA
from serving.postgres import PASSWORD, Postgres
from store.storecases import RUN, ids, line, row, ship


def test_what_was_kept_is_there_when_it_is_opened_again(url: str) -> None:
    """Migrating twice changes nothing."""
    first = Store.open(url)
    first.take([ship([line("a")])])
    first.close()
    again = Store.open(url)
    assert ids(again) == ["a"]
    again.close()


def test_the_migrations_make_the_tables_that_the_code_knows(url: str) -> None:
    """Not a column more or less."""
    database = Database(url)
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


def test_two_may_open_an_empty_one_at_once(url: str) -> None:
    """One migrates, the other waits for it."""
    stores: list[Store] = []
    errors: list[BaseException] = []

    def start() -> None:
        try:
            stores.append(Store.open(url))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for number, store in enumerate(stores):
        store.take([ship([line(str(number))])])
    assert ids(stores[0]) == ["0", "1", "2"]
    for store in stores:
        store.close()


def test_a_store_of_the_first_version_is_brought_up_to_date(url: str) -> None:
    """Its pace says the same as if it had been kept by today's tables."""
    store = Store.open(url)
    store.take([ship([], [row(s, {0: 1.0 + s / 1e5, 1: 2.0}, step=s) for s in range(0, 40_000, 50)])])
    expected = store.pace(RUN.key, points=30)
    store.close()
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        removed = connection.exec_driver_sql("DELETE FROM pace WHERE width_s = 600").rowcount
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '1'")
    engine.dispose()
    assert removed > 60
    again = Store.open(url)
    assert again.pace(RUN.key, points=30) == expected
    again.close()


def test_a_store_of_a_newer_version_is_refused(url: str) -> None:
    """In one line; nothing of it is changed."""
    Store.open(url).close()
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '99'")
    with pytest.raises(
        InputError, match=r"written by a newer Holdfast: its tables are of version 99, expected"
    ):
        Store.open(url)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "99"
    engine.dispose()


def test_a_path_is_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    """And so are the files beside it."""
    store = Store.open(str(tmp_path / "store.db"))
    store.take([ship([line("a")])])
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert files == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)
    store.close()


def test_sqlite_is_set_up_to_last(tmp_path: Path) -> None:
    """Every connection, to write or to read."""
    database = Database(str(tmp_path / "store.db"))
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "auto_vacuum": 2}
    for use in (database.read, database.write):
        with use() as connection:
            found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted}
        assert found == wanted
    database.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no file is named there"),
        ("sqlite://", "no file is named there"),
        ("sqlite:///:memory:", "no file is named there"),
        ("mysql://u:secret@h/d", "mysql://…: no store is kept there"),
        ("postgresql://u:secret@h:port/d", "postgresql://…: not an address of a store"),
        ("/nowhere/at/all.db", "cannot be made: No such file or directory"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(text: str, reason: str) -> None:
    """In one line, without the password."""
    with pytest.raises(InputError, match=reason) as caught:
        Store.open(text)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """At once, and not after SQLite has tried for half a minute."""
    with pytest.raises(InputError, match="is no file, expected that of a database"):
        Store.open(str(tmp_path))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """And left as it is."""
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to look like one\n" * 100)
    with pytest.raises(InputError, match=r"notes.txt: file is not a database"):
        Store.open(str(file))
    assert file.read_text().startswith("not a database")


def test_a_password_is_never_shown(postgres: Postgres) -> None:
    """Neither in an address nor in an error, wherever it stands."""
    right = postgres.url
    wrong = right.replace(PASSWORD, "secret-guess")
    behind = right.replace(f":{PASSWORD}", "") + "&password=secret-guess"
    for text in (wrong, behind):
        with pytest.raises(InputError) as caught:
            Store.open(text)
        assert "password authentication failed" in str(caught.value)
        assert "secret-guess" not in str(caught.value)
        assert caught.value.__suppress_context__
    assert PASSWORD not in read_address(right).shown
    assert read_address(behind).hide("it was secret-guess") == "it was ***"


def test_runs_do_not_leak_between_stores(url: str, tmp_path: Path) -> None:
    """Two stores know nothing of each other."""
    one, other = Store.open(url), Store.open(str(tmp_path / "other.db"))
    one.take([ship([line("a")])])
    assert other.run(RUN.key) is None
    one.close()
    other.close()
