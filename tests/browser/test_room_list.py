"""The list of runs: those in trouble first, each with its state in words, always up to date."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast.values import RunEnded
from room import Room
from roomruns import Scribe, make_death_story, make_pipeline, make_slow, start

pytestmark = pytest.mark.processes


def test_runs_in_trouble_come_first_and_say_what_it_is(room: Room) -> None:
    """The order is by trouble, not by name or age; state and cause are words."""
    room.take(start(Scribe("fine")).pace(5, {0: (0.5, 0.4)}))
    room.take(start(Scribe("over")).tell(RunEnded(exit_code=0, reason="succeeded")))
    room.take(make_slow(make_pipeline(Scribe("slow-one"))))
    room.take(make_death_story(start(Scribe("short"))))
    page = room.open("/")
    names = page.locator(".runs .name a").all_inner_texts()
    assert names == ["slow-one", "short", "fine", "over"]
    states = [words.strip() for words in page.locator(".runs .pill").all_inner_texts()]
    assert states == ["slow", "degraded", "training", "ended"]
    first = page.locator(".runs > li").first
    expect(first).to_contain_text("rank 6 on node-1: its compute is slow")
    expect(first).to_contain_text("16 workers")
    expect(first).to_contain_text("GPU h")
    expect(first.get_by_role("img", name="step times")).to_be_visible()


def test_a_run_that_begins_appears_without_a_reload(room: Room) -> None:
    """The list follows the server; what it says when it is empty helps."""
    page = room.open("/")
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(page.locator("pre").first).to_contain_text(f"holdfast run --server {room.url}")
    page.evaluate("window.notReloaded = true")
    scribe = start(Scribe("newcomer"))
    room.post(scribe)
    expect(page.get_by_role("link", name="newcomer")).to_be_visible()
    room.post(scribe.pace(41, {0: (0.5, 0.4)}))
    expect(page.locator(".runs > li")).to_contain_text("step 41")
    room.post(scribe.tell(RunEnded(exit_code=0, reason="succeeded")))
    expect(page.locator(".runs .pill")).to_have_text("ended")
    assert page.evaluate("window.notReloaded")


def test_search_finds_by_name_and_says_when_there_is_nothing(room: Room) -> None:
    """The key ``/`` goes to the search box; it works without a script as well."""
    room.take(start(Scribe("alpha")))
    room.take(start(Scribe("beta")))
    page = room.open("/")
    page.keyboard.press("/")
    page.keyboard.type("alp")
    page.keyboard.press("Enter")
    expect(page.locator(".runs .name a")).to_have_text(["alpha"])
    page = room.open("/?text=zzz")
    expect(page.get_by_text("No run matches “zzz”")).to_be_visible()


def test_a_run_that_is_not_heard_of_is_called_silent(room: Room) -> None:
    """After half a minute nobody may take what is shown for how it is."""
    room.take(start(Scribe("quiet")), heard_s_ago=120)
    page = room.open("/")
    expect(page.locator(".runs .pill")).to_have_text("silent")
    expect(page.locator(".runs .heard")).to_contain_text("ago")
    page = room.open("/runs/quiet-1")
    expect(page.get_by_text("Nothing was heard of this run for a while")).to_be_visible()
