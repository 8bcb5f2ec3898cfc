"""The page of a plan says in words what the charts show, stands alone, and can be used by keyboard."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast.plan.planner import FaultFree, Plan
from holdfast.plan.problem import Problem, Worker
from holdfast.plan.roles import Move
from holdfast.serve.gantt import Panel
from holdfast.serve.planpage import draw_page
from schedules import make_problem, timed_1f1b

BROWSER = shutil.which("chromium")
WALK = """<script>
const told = document.getElementById('told'), said = [];
const ops = [...document.querySelectorAll('rect[tabindex]')];
const press = key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
ops[0].focus();
document.hasFocus() || ops[0].dispatchEvent(new FocusEvent('focus'));
said.push(told.textContent);
for (const key of ['ArrowRight', 'ArrowDown', 'ArrowLeft']) { press(key); said.push(told.textContent); }
said.push(document.querySelectorAll('rect.on').length);
press('Escape'); said.push(told.textContent, document.querySelectorAll('.on, .dim').length);
document.body.innerHTML = '<pre>' + said.join('|') + '</pre>';
</script></body>"""
"""Walks through the chart by keys, then leaves what was told as the only content.

A browser without a window may hold focus events back until it thinks that somebody looks at it.
"""


class _Page(HTMLParser):
    """Collects tags with their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def _plan(problem: Problem, *, lower_bound: float, moves: tuple[Move, ...] = ()) -> Plan:
    return Plan(
        problem=problem,
        mode="adaptive",
        timed=timed_1f1b(problem),
        lower_bound=lower_bound,
        fault_free=FaultFree(one_f_one_b=36.0, zero_bubble=18.0),
        moves=moves,
    )


def _page(problem: Problem, *, lower_bound: float = 27.0, moves: tuple[Move, ...] = ()) -> str:
    plan = _plan(problem, lower_bound=lower_bound, moves=moves)
    return draw_page(problem, plan, [Panel(title="A plan", problem=problem, timed=plan.timed)])


def test_the_figures_are_there_in_words() -> None:
    """Period against its bound and against the job without faults, makespan, memory, who is hit."""
    text = _Page(_page(make_problem())).text
    for words in (
        "3 pipelines x 4 stages x 6 micro-batches",
        "nobody slow or dead",
        "proven optimal: the lower bound is 27",
        "the plan takes 25.0 % less",
        "the plan takes 50.0 % longer",
        "micro-batches at most, on 0.0, 1.0, 2.0",
    ):
        assert words in text
    assert "12.5 % above the lower bound 24" in _Page(_page(make_problem(), lower_bound=24.0)).text


def test_re_routed_micro_batches_and_changed_roles_are_listed() -> None:
    """From whom, to whom, which, and what has to be copied."""
    move = Move(worker=Worker(0, 1), to=Worker(1, 2), size_bytes=12_500_000_000)
    text = _Page(_page(make_problem(dead="1.2"), moves=(move,))).text
    assert "1.2 to 0.2: 0 2 4" in text
    assert "0.1 becomes 1.2, copying 12.5 GB" in text


def test_the_page_needs_no_network_and_fits_a_phone() -> None:
    """No link, no image, nothing to load; it tells phones its width and follows the theme."""
    page = _page(make_problem(dead="1.2"))
    parsed = _Page(page)
    assert not [
        tag for tag, attributes in parsed.tags if tag in ("link", "img", "iframe") or "src" in attributes
    ]
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in parsed.tags
    assert "prefers-color-scheme:dark" in page
    assert [attributes for _, attributes in parsed.tags if attributes.get("role") == "region"] == [
        {"class": "chart", "tabindex": "0", "role": "region", "aria-label": "Gantt charts"}
    ]


def test_a_large_plan_does_not_promise_what_its_chart_cannot_do() -> None:
    """Without a rectangle for each operation there is nothing to point at."""
    assert "Point at an operation" in _page(make_problem(2, 2, 2))
    assert "Point at an operation" not in _page(make_problem(8, 8, 32))


@pytest.mark.processes
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
def test_arrow_keys_walk_through_the_operations(tmp_path: Path) -> None:
    """Focus tells about an operation, arrows go to its neighbours, Escape lets go."""
    file = tmp_path / "page.html"
    file.write_text(_page(make_problem(2, 2, 2)).replace("</body>", WALK))
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    said = re.search("<pre>(.*)</pre>", done.stdout)
    assert said is not None
    assert said[1].split("|") == [
        "F of micro-batch 0 of pipeline 0 at stage 0, on 0.0 from 0 to 1",
        "F of micro-batch 1 of pipeline 0 at stage 0, on 0.0 from 1 to 2",
        "F of micro-batch 0 of pipeline 0 at stage 1, on 0.1 from 1 to 2",
        "F of micro-batch 0 of pipeline 0 at stage 1, on 0.1 from 1 to 2",
        "4",
        "",
        "0",
    ]
