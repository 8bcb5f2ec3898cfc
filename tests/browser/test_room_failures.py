"""What a person sees when something does not work."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from holdfast.errors import StoreError
from room import Room
from roomruns import Scribe, start

pytestmark = pytest.mark.processes


def test_an_unknown_run_is_a_page_that_says_what_to_do(room: Room) -> None:
    """No dead end: the list is one click away."""
    room.forgiven.append("404")
    page = room.open("/runs/nobody")
    expect(page.get_by_role("alert")).to_contain_text("No run 'nobody'")
    expect(page.get_by_role("alert")).to_contain_text("may have been removed")
    page.get_by_role("link", name="To the list of runs").click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


def test_a_store_that_is_away_is_told_and_tried_again(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says that runs go on, and shows them by itself when the store is back."""
    room.forgiven.append("503")
    room.take(start(Scribe("ddp")))

    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("the store cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(room.store, "runs", fail)
        page = room.open("/")
        expect(page.get_by_role("alert")).to_contain_text("The store cannot be used now")
        expect(page.get_by_role("alert")).to_contain_text("Runs go on without it")
    expect(page.get_by_role("link", name="ddp")).to_be_visible(timeout=30_000)


def test_a_lost_connection_is_told_until_it_is_back(room: Room) -> None:
    """What is old is not shown as if it were new."""
    scribe = start(Scribe("ddp"))
    room.take(scribe)
    room.forgiven += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
    page = room.open(f"/runs/{scribe.key}")
    other = Room(room.store, room.context)
    other.forgiven = room.forgiven
    with other.serve():
        page = other.open(f"/runs/{scribe.key}")
        expect(page.locator("[data-state]")).to_have_text("training")
        expect(page.locator("#away")).to_be_hidden()
    expect(page.locator("#away")).to_contain_text("Not connected since", timeout=30_000)
    with other.serve():
        other.take(scribe.pace(123, {0: (0.5, 0.4)}))
        expect(page.locator("#away")).to_be_hidden(timeout=30_000)
        expect(page.locator(".figures")).to_contain_text("123")
        page.close()
    assert not other.complaints, other.complaints
