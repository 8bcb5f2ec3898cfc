"""Fixtures of the web server's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.serve.store import Store
from webparts import TOKEN, Running, open_store, running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of its own."""
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def server(store: Store) -> Iterator[Running]:
    """A server on loopback; reading is open."""
    with running(store) as started:
        yield started


@pytest.fixture
def guard(server: Running) -> Iterator[httpx.Client]:
    """Somebody with the token."""
    with server.client(token=TOKEN) as client:
        yield client


@pytest.fixture
def stranger(server: Running) -> Iterator[httpx.Client]:
    """Somebody without it."""
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Somebody with the token of a server that a whole file of tests shares, as nothing is kept there."""
    with (
        open_store(tmp_path_factory.mktemp("store")) as opened,
        running(opened) as started,
        started.client(token=TOKEN) as client,
    ):
        yield client
