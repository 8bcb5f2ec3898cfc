"""The page of one run, live: figures, the plot, workers, incidents, the schedule, events."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from helpers import make_death
from holdfast.values import Regrouped, StepSeen, WorkerDied
from room import Room
from roomruns import EVIL, Scribe, make_death_story, make_pipeline, make_profile, make_slow, start

pytestmark = pytest.mark.processes


def test_a_slow_pipeline_is_told_from_figures_to_events(room: Room) -> None:
    """Every part shows what it is for."""
    scribe = make_profile(make_slow(make_pipeline(Scribe("llm"))))
    room.take(scribe)
    page = room.open(f"/runs/{scribe.key}")
    expect(page.get_by_role("heading", name="llm")).to_be_visible()
    expect(page.locator("[data-state]")).to_have_text("slow")
    expect(page.locator(".command")).to_have_text("train.py --config large.toml")
    figures = page.locator(".figures")
    for words in ("1,196", "1.22x the usual", "4 x 4 pipeline", "lost", "saved (estimated)"):
        expect(figures).to_contain_text(words)
    plot = page.get_by_role("img", name="Step time over")
    expect(plot).to_be_visible()
    assert "slow from" in (plot.get_attribute("aria-label") or "")
    assert page.locator(".pace .shade.slow").count() == 1
    expect(page.locator(".pace .mark.deed")).to_contain_text("S2")
    plot.hover()
    expect(page.locator("[data-readout]")).to_contain_text("UTC, step")
    expect(page.locator("[data-readout]")).to_contain_text("slowest")
    slow = page.locator(".workers td").filter(has_text="1.90x")
    expect(slow).to_contain_text("slow")  # In words, beside the colour and the shape.
    expect(page.locator("#schedule .gantt svg")).to_be_visible()
    expect(page.locator("#schedule")).to_contain_text("1.2 x0.53")
    expect(page.get_by_role("table").filter(has_text="suspect")).to_contain_text("attention.forward")


def test_an_incident_opens_to_its_evidence_and_stays_open(room: Room) -> None:
    """What a reader has opened and where he is survives what changes meanwhile; nothing is reloaded."""
    scribe = make_slow(make_pipeline(Scribe("llm")))
    room.take(scribe)
    page = room.open(f"/runs/{scribe.key}")
    page.evaluate("window.notReloaded = true")
    incident = page.locator("details.incident")
    expect(incident.locator(".inside")).to_be_hidden()
    incident.locator("summary").click()
    for words in (
        "93% sure",
        "rank 6 needs 0.72 s of its own",
        "S2 is in force from step 800 on",
        "estimated",
    ):
        expect(incident).to_contain_text(words)
    for name in ("detected", "named", "decided", "done", "verified"):
        expect(incident.locator(".track li.is-done").filter(has_text=name)).to_have_count(1)
    incident.locator("summary").focus()
    room.post(scribe.tell(WorkerDied(death=make_death(rank=9, node=2, host="node-2"))))
    expect(page.locator("details.incident")).to_have_count(2)
    opened = page.locator("details.incident[open]")
    expect(opened).to_have_count(1)
    expect(opened).to_contain_text("93% sure")
    assert page.evaluate(
        "document.activeElement.closest('details') === document.querySelector('details[open]')"
    )
    assert page.evaluate("window.notReloaded")


def test_a_death_is_seen_at_once_and_so_is_that_training_goes_on(room: Room) -> None:
    """State, figures and workers follow without a reload."""
    scribe = start(Scribe("ddp"))
    for second in range(60, 0, -2):
        scribe.pace(60 - second, dict.fromkeys(range(8), (0.5, 0.4)), s_ago=second)
    room.take(scribe)
    page = room.open(f"/runs/{scribe.key}")
    expect(page.locator("[data-state]")).to_have_text("training")
    room.post(scribe.tell(WorkerDied(death=make_death(rank=3, signal="SIGKILL", exit_code=137))))
    expect(page.locator("[data-state]")).to_have_text("degraded")
    expect(page.locator(".workers td").nth(3)).to_contain_text("dead")
    expect(page.locator("details.incident")).to_contain_text("rank 3 died: SIGKILL")
    left = [0, 1, 2, 4, 5, 6, 7]
    room.post(scribe.tell(Regrouped(generation=1, members=left, version=60, places=left, dead=[3])))
    expect(page.locator("details.incident")).to_contain_text("7 workers go on from step 60")
    expect(page.locator(".figures")).to_contain_text("7 of 8")
    room.post(scribe.pace(99, dict.fromkeys(left, (0.5, 0.4))))
    expect(page.locator(".figures")).to_contain_text("99")
    expect(page.locator("#schedule")).to_contain_text("Only pipelines")


def test_ten_thousand_workers_are_blocks_that_open(room: Room) -> None:
    """What can be seen is shown, and the page stays small; the rest is one click away."""
    scribe = start(Scribe("huge"), ranks=10_000, nodes=1250)
    scribe.pace(5, {rank: (1.2, 1.9 if rank == 4711 else 1.0) for rank in range(10_000)})
    scribe.tell(WorkerDied(death=make_death(rank=123, node=15, host="node-15")), node=15)
    room.take(scribe)
    path = f"/runs/{scribe.key}"
    whole = httpx.get(room.url + path, timeout=120)
    part = httpx.get(f"{room.url}{path}/part/workers", timeout=60)
    assert len(part.content) < 120_000
    assert len(whole.content) < 200_000
    page = room.open(path)
    expect(page.locator(".blocks a")).to_have_count(1250)
    expect(page.locator(".counts")).to_contain_text("1 dead")
    page.locator(".blocks a.b4").click()
    expect(page.locator(".opened")).to_contain_text(
        "rank 4711 on node-588: training, needs 1.90 s of its own"
    )
    page.locator(".blocks a.bx").click()
    expect(page.locator(".opened td").filter(has_text="123")).to_contain_text("dead")


def test_events_are_paged(room: Room) -> None:
    """The last 200 come first; older ones are fetched in place."""
    scribe = start(Scribe("long"))
    for step in range(450):
        scribe.tell(StepSeen(rank=0, step=step))
    room.take(scribe)
    page = room.open(f"/runs/{scribe.key}")
    page.locator("#events summary").click()
    expect(page.locator(".events li")).to_have_count(200)
    page.get_by_role("link", name="older").click()
    expect(page.locator("#events")).to_contain_text("page 2 of 3")
    page.get_by_role("link", name="older").click()
    expect(page.locator(".events li").last).to_contain_text("launcher started")


def test_what_runs_say_stays_text(room: Room) -> None:
    """Scripts in names, commands, hosts and error messages are shown, not run."""
    scribe = start(Scribe(f"evil{EVIL}", command=["train.py", EVIL]))
    make_death_story(scribe, error=f"ValueError: {EVIL}")
    scribe.tell(StepSeen(rank=1, step=4), host=EVIL)
    room.take(scribe)
    dialogs: list[str] = []
    room.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in ("/", f"/runs/{scribe.key}?events=0", "/incidents"):
        page = room.open(path)
        expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
        assert page.locator("main script").count() == 0
        expect(page.locator("main")).to_contain_text("{{7*7}}")
    assert not dialogs, "a script was run"
