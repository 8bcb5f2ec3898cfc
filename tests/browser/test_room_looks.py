"""Pages for every reader: by keyboard, on a phone, in the dark, without scripts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from holdfast.values import RunEnded
from room import Room
from roomruns import Scribe, make_death_story, make_pipeline, make_profile, make_slow, start

pytestmark = pytest.mark.processes

PATHS = (
    "/",
    "/runs/llm-1",
    "/runs/wide-1",
    "/incidents",
    "/reliability",
    "/sign-in",
    "/runs/nobody",
    "/?text=zzz",
)


def _fill(room: Room) -> None:
    room.take(make_profile(make_slow(make_pipeline(Scribe("llm", command=["train.py", "-" * 300])))))
    wide = start(Scribe("wide"), ranks=64, nodes=4)
    room.take(make_death_story(wide, members=64))
    room.take(start(Scribe("over")).tell(RunEnded(exit_code=1, reason="failed: " + "x" * 200)))


def test_keys_move_between_incidents_and_show_help(room: Room) -> None:
    """``j`` and ``k`` move, Enter opens, ``?`` explains, ``t`` turns the light off."""
    _fill(room)
    page = room.open("/incidents")
    stops = page.locator("[data-incident] summary")
    expect(stops).to_have_count(2)
    page.keyboard.press("j")
    expect(stops.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(stops.nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("[data-incident]").first).to_have_attribute("open", "")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next, previous incident or run")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_first_tab_skips_to_the_content(room: Room) -> None:
    """Who uses the keyboard need not pass the menu each time."""
    page = room.open("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_incidents_are_filtered_by_kind_and_state(room: Room) -> None:
    """A filter that matches nothing says so."""
    _fill(room)
    page = room.open("/incidents")
    expect(page.locator("[data-incident]").first).to_contain_text("in wide")  # The newest first.
    page.get_by_label("Kind").select_option("slow")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("[data-incident]")).to_have_count(1)
    expect(page.locator("[data-incident]")).to_contain_text("in llm")
    page.get_by_label("State").select_option("no")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No such incident")).to_be_visible()


def test_dark_is_chosen_by_a_button_and_kept(room: Room) -> None:
    """The system's choice holds until the reader makes his own."""
    page = room.open("/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Show it dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    page.evaluate("localStorage.clear()")
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


@pytest.mark.parametrize("width", [360, 768])
def test_no_page_scrolls_sideways(room: Room, width: int) -> None:
    """On a phone only tables and charts do, in themselves."""
    _fill(room)
    room.forgiven.append("404")
    room.page.set_viewport_size({"width": width, "height": 740})
    for path in PATHS:
        page = room.open(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is {wide} px too wide"


def test_pages_work_without_scripts(room: Room, browser: Browser) -> None:
    """The same is shown, as of now; details open, links lead on."""
    _fill(room)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{room.url}/")
    page.get_by_role("link", name="llm").click()
    expect(page.locator("[data-state]")).to_have_text("slow")
    page.locator("details.incident summary").first.click()
    expect(page.locator("details.incident").first).to_contain_text("S2 is in force")
    expect(page.locator(".gantt svg")).to_be_visible()
    page.goto(f"{room.url}/runs/llm-1?events=0")
    expect(page.locator(".events li").first).to_be_visible()
    context.close()


def test_reliability_says_how_much_is_needed_and_then_draws(room: Room) -> None:
    """Too little is said to be too little; with enough there are curves and an interval."""
    page = room.open("/reliability")
    expect(page.get_by_text("Too little was seen so far")).to_be_visible()
    many = start(Scribe("month", began_s_ago=86_400 * 20), ranks=64, nodes=8, s_ago=86_400 * 20)
    room.take(make_death_story(many, members=64))
    page = room.open("/reliability")
    expect(page.locator(".figures")).to_contain_text("90 % interval")
    expect(page.locator(".plot svg")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Every death or hang of workers counts as a failure")
