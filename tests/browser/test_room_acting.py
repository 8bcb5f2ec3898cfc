"""Who is signed in gives orders, and sees what comes of them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast.values import Ordered, RunEnded
from room import TOKEN, Room
from roomruns import Scribe, make_pipeline, make_slow, start

pytestmark = pytest.mark.processes


def test_a_wrong_token_is_told_and_the_right_one_signs_in(room: Room) -> None:
    """Without it there is nothing to press; after it the reader is where he wanted to be."""
    scribe = make_slow(make_pipeline(Scribe("llm")))
    room.take(scribe)
    room.forgiven.append("401")
    page = room.open(f"/runs/{scribe.key}")
    expect(page.locator("#act")).to_contain_text("Sign in to act")
    assert page.locator("#act button").count() == 0
    page.locator("#act").get_by_role("link", name="Sign in").click()
    page.get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("the token is wrong")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page).to_have_url(f"{room.url}/runs/{scribe.key}")
    expect(page.locator("#act").get_by_role("button", name="Pause actions")).to_be_visible()
    page.get_by_role("button", name="sign out").click()
    page = room.open(f"/runs/{scribe.key}")
    expect(page.locator("#act")).to_contain_text("Sign in to act")


def test_undo_is_asked_for_twice_and_its_outcome_appears(room: Room) -> None:
    """The order waits where the guard fetches it; what came of it is shown without a reload."""
    scribe = make_slow(make_pipeline(Scribe("llm")))
    room.take(scribe)
    room.sign_in()
    page = room.open(f"/runs/{scribe.key}")
    confirm = page.get_by_role("button", name="Yes, undo it")
    expect(confirm).to_be_hidden()
    page.locator("#confirm-undo summary").click()
    expect(page.locator("#confirm-undo")).to_contain_text("S2 is taken back")
    assert room.store.orders(scribe.key) == []
    confirm.click()
    expect(page.locator(".orders li")).to_contain_text("waiting")
    [order] = room.store.orders(scribe.key)
    assert (order.kind, order.words, order.who) == ("undo", "", "Ada")
    page.evaluate("window.notReloaded = true")
    room.post(
        scribe.tell(
            Ordered(order=order.order_id, what="undo", who="Ada", outcome="all is as it was", is_done=True)
        )
    )
    expect(page.locator(".orders li")).to_contain_text("answered")
    expect(page.locator(".orders li")).to_contain_text("all is as it was")
    assert page.evaluate("window.notReloaded")


def test_other_orders_carry_their_words(room: Room) -> None:
    """Pausing, allowing, profiling and setting reach the store as the guard reads them."""
    scribe = start(Scribe("ddp"))
    room.take(scribe)
    room.sign_in()
    page = room.open(f"/runs/{scribe.key}")
    for name in ("Pause actions", "Allow all", "S2 and S3", "Profile all ranks"):
        page.locator("#act").get_by_role("button", name=name).click()
        page.wait_for_load_state()
    page.get_by_label("name=value").fill("least_confidence=0.9")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator(".orders li")).to_have_count(5)
    found = [(order.kind, order.words) for order in room.store.orders(scribe.key)]
    assert found == [
        ("act", "none"),
        ("act", "all"),
        ("act", "S2,S3"),
        ("profile", ""),
        ("set", "least_confidence=0.9"),
    ]


def test_what_is_typed_is_not_lost_when_something_changes(room: Room) -> None:
    """A part in which somebody writes is left alone until he is done."""
    scribe = start(Scribe("ddp"))
    room.take(scribe)
    room.sign_in()
    page = room.open(f"/runs/{scribe.key}")
    page.get_by_label("name=value").fill("profile_every=")
    room.post(scribe.pace(77, {0: (0.5, 0.4)}))
    expect(page.locator(".figures")).to_contain_text("77")
    expect(page.get_by_label("name=value")).to_have_value("profile_every=")


def test_nothing_can_be_done_about_a_run_that_is_over(room: Room) -> None:
    """There are no buttons that could only fail."""
    scribe = start(Scribe("ddp")).tell(RunEnded(exit_code=0, reason="succeeded"))
    room.take(scribe)
    room.sign_in()
    page = room.open(f"/runs/{scribe.key}")
    expect(page.locator("#act")).to_contain_text("This run is over")
    assert page.locator("#act button").count() == 0
