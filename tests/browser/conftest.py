"""A browser for the tests, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from room import Room


def _find_chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs Chromium")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=_find_chromium(), args=["--no-sandbox"])
        yield found
        found.close()


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
