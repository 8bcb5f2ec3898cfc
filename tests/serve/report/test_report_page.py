"""A report as a page and as a text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import EVENTS, make_death
from holdfast.findings import Suspect
from holdfast.serve.report.document import read_tale, render
from holdfast.serve.report.masking import HIDDEN, mask_command, mask_setting
from holdfast.serve.report.picture import draw_run
from holdfast.serve.report.wording import tell_time
from holdfast.values import AnyEvent, JobHung, SuspectsNamed, WorkerDied
from runstories import START, died, eventful, slowed, started, tell, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NASTY = '<script>alert(1)</script> & "x" \x1b[31m \u202e `` ``` | # \n <!-- -->'


class Balance(HTMLParser):
    """Follows a page and says what was never closed, and what would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "action", "data")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def check_page(page: str) -> Balance:
    """Fail where a page is broken, or would load or run something."""
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert "script" not in balance.tags
    assert balance.loads == []
    assert "url(" not in page
    assert "@import" not in page
    return balance


def test_a_run_is_told_with_its_incidents_and_its_bill(tmp_path: Path) -> None:
    """The same words on the page and in the text; the page has the picture too."""
    tale = read_tale(write_run(tmp_path / "demo", *eventful()))
    page, text = render(tale, ".html"), render(tale, ".md")
    check_page(page)
    assert text.startswith("<!-- holdfast report -->\n\n# demo: ended well after 3.3 min\n")
    assert "### 1. Slow job: rank 1" in text
    assert "### 2. Death: rank 3" in text
    assert "| 2. Death: rank 3 | 2.00 s | 0 s | 0 s | 0.0022 | 0 |" in text
    assert "The bill: 13.0 s lost (0.014 GPU-h), of which 500 ms for what was done; 16.0 s saved." in text
    assert "the ETTR is 87.5% at most" in text
    for said in (
        "Slow job: rank 1",
        "the others went on after 2.00 s",
        "setting act",
        "run ended: succeeded",
    ):
        assert said in page
        assert said in text
    assert "setting runs" not in page, "what is as always is not worth a line"
    assert page.count("<svg") == 1


def test_the_picture_shades_a_slow_job_from_its_first_slow_step(tmp_path: Path) -> None:
    """Noticed at 80 s, begun with step 50 at 60 s, closed at 123 s, of 200 s on 912 pixels."""
    drawing = draw_run(read_tale(write_run(tmp_path, *eventful())))
    found = re.search(r'<rect class="slow" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawing)
    assert found is not None
    assert (float(found[1]) - 64) / 912 * 200 == pytest.approx(60, abs=1.1)
    assert float(found[2]) / 912 * 200 == pytest.approx(63, abs=1.1)
    for said in ("S2", "undo", "rank 3 died"):
        assert f">{said}</text>" in drawing


def test_nothing_that_a_job_says_becomes_part_of_the_page(tmp_path: Path) -> None:
    """Neither of the log, nor of tracebacks, hosts, evidence or the command."""
    bad = Suspect(ranks=[0], hosts=[NASTY], function=NASTY, cause="compute", confidence=0.9, evidence=[NASTY])
    death = make_death(rank=0, host=NASTY, error=NASTY, traceback=NASTY, signal=None)
    hang = JobHung(lasted_s=9.0, limit_s=8.0, suspects=[bad], stacks={"0": [NASTY], "x": [NASTY]})
    folder = write_run(
        tmp_path,
        [
            tell(0, msgspec.structs.replace(START, argv=[NASTY])),
            tell(1, started(0)),
            tell(5, slowed(50)),
            tell(6, SuspectsNamed(since_step=50, suspects=[bad])),
            tell(7, hang),
            tell(9, WorkerDied(death=death)),
        ],
    )
    log = folder / "logs" / "attempt_0" / "rank_0.log"
    log.parent.mkdir(parents=True)
    log.write_text(NASTY * 100)
    tale = read_tale(folder)
    page, text = render(tale, ".html"), render(tale, ".md")
    check_page(page)
    assert "&lt;script&gt;" in page
    for said in (page, text):
        assert "\x1b" not in said
        assert "\u202e" not in said
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "script" in outside
    assert re.search(r"(?<!\\)<script", outside) is None


@settings(max_examples=40)
@given(st.lists(st.sampled_from(EVENTS), max_size=12), st.integers(0, 2))
def test_any_log_is_told(
    tmp_path_factory: pytest.TempPathFactory, events: list[AnyEvent], attempt: int
) -> None:
    """In whatever order, a page comes of it that is whole."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "events.jsonl").touch()
    write_run(folder, [tell(n, event, attempt=attempt) for n, event in enumerate(events)])
    tale = read_tale(folder)
    check_page(render(tale, ".html"))
    assert render(tale, ".md").endswith("\n")


def test_an_empty_log_is_told_as_one_of_which_nothing_is_known(tmp_path: Path) -> None:
    """It says so in the title and among what is not known."""
    (tmp_path / "events.jsonl").write_bytes(b"")
    text = render(read_tale(tmp_path), ".md")
    assert ": nothing is known of it\n" in text
    assert "nothing is known of this run" in text


def test_a_death_of_thousands_stays_a_page_that_can_be_read(tmp_path: Path) -> None:
    """The first and the last of its moments, how many are between them, and no row for every event."""
    count = 3000
    deaths = [tell(10 + number / 1000, died(number)) for number in range(count)]
    tale = read_tale(write_run(tmp_path, [tell(0, START), tell(1, started(*range(count))), *deaths]))
    text = render(tale, ".md")
    assert f"| {count - 52:,} more |" in text
    assert "ranks 0 to 2999" in text
    assert "The first 1,000 and the last 1,000 of 3,002" in text
    assert len(render(tale, ".html")) < 1_000_000


def test_secrets_of_a_command_are_hidden() -> None:
    """By the name of a flag or a setting, and where an address has a login."""
    told = mask_command(
        ["--server-token", "s3", "--lr", "1", "--api-key=k", "https://me:pw@host/x", "--auth"]
    )
    assert told == [
        "--server-token",
        HIDDEN,
        "--lr",
        "1",
        f"--api-key={HIDDEN}",
        f"https://{HIDDEN}@host/x",
        "--auth",
    ]
    assert mask_setting("notify_webhook", "https://hooks/abc") == HIDDEN
    assert mask_setting("act", ["S2", "S3"]) == "S2 S3"
    shown = mask_command(["x", "--ssh-key", "abc", "--key=abc", "--num-key-value-heads", "8", "--keep", "9"])
    assert shown == ["x", "--ssh-key", HIDDEN, f"--key={HIDDEN}", "--num-key-value-heads", "8", "--keep", "9"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (0.0421, "42.1 ms"),
        (3.14159, "3.14 s"),
        (42.0, "42.0 s"),
        (600, "10.0 min"),
        (7200, "2.0 h"),
        (864000, "10.0 days"),
    ],
)
def test_durations_have_the_unit_that_fits(seconds: float, words: str) -> None:
    """From milliseconds to days."""
    assert tell_time(seconds) == words


@pytest.mark.processes
def test_a_browser_shows_the_page_on_a_narrow_screen_and_loads_nothing_else(
    browser: Browser, tmp_path: Path
) -> None:
    """Nothing sticks out at 400 pixels, and light and dark differ."""
    path = tmp_path / "report.html"
    path.write_text(render(read_tale(write_run(tmp_path / "run", *eventful())), ".html"))
    colours, asked = set(), []
    schemes: list[Literal["light", "dark"]] = ["light", "dark"]
    for scheme in schemes:
        page = browser.new_page(viewport={"width": 400, "height": 800}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.locator("section").count() == 3
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert len(colours) == 2
    assert set(asked) == {path.as_uri()}
