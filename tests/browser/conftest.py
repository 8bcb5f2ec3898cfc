"""A server for the browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from room import Room


@pytest.fixture
def room(browser: Browser, tmp_path: Path) -> Iterator[Room]:
    """A server with an empty store, and a page that must not complain."""
    from holdfast.serve.store import Store
    from room import Room

    store = Store.open(str(tmp_path / "store.sqlite"))
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    try:
        room = Room(store, context)
        with room.serve():
            yield room
            # Before the server ends: that it is gone is worth a complaint.
            complaints = room.complaints
            context.close()
    finally:
        store.close()
    assert not complaints, complaints
