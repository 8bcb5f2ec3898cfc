"""Stores to test: every test that asks for one runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.serve.store import Store
from serving.postgres import Postgres, start_postgres, why_no_postgres
from store.storecases import Clock


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for all tests; each has a corner of its own."""
    reason = why_no_postgres()
    if reason is not None:
        pytest.skip(reason)
    with start_postgres(tmp_path_factory.mktemp("postgres"), is_durable=False) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.make_schema(f"s{abs(hash(tmp_path))}")


@pytest.fixture
def clock() -> Clock:
    """The server's clock, which a test can turn."""
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    """An empty store."""
    opened = Store.open(url, clock=clock)
    yield opened
    opened.close()
