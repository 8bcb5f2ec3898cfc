"""Gantt charts stand alone, show every operation where there is room, and never grow out of hand."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.plan.problem import Costs, Problem
from holdfast.serve.gantt import WIDTH, Panel, draw
from holdfast.serve.svg import num, round_up
from schedules import make_problem, timed_1f1b


def _panel(problem: Problem, *, is_split: bool = False, lower_bound: float | None = None) -> Panel:
    timed = timed_1f1b(problem, is_split=is_split)
    return Panel(title="A plan", problem=problem, timed=timed, lower_bound=lower_bound)


def _elements(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter())


def _titles(svg: str) -> list[str]:
    return [element.text or "" for element in _elements(svg) if element.tag.endswith("}title")]


def _words(svg: str) -> list[str]:
    return [element.text or "" for element in _elements(svg) if element.tag.endswith("}text")]


def test_every_operation_is_a_rectangle_with_its_name_and_times() -> None:
    """Once each, in every panel, as wide as it is long."""
    problem = make_problem()
    svg = draw([_panel(problem), _panel(problem, is_split=True)])
    titles = _titles(svg)
    assert len(titles) == 3 * 4 * 6 * (2 + 3)
    assert titles.count("F of micro-batch 4 of pipeline 2 at stage 3, on 2.3 from 15 to 16") == 1
    rects = [element for element in _elements(svg) if len(element) and element.tag.endswith("}rect")]
    widths = {element.get("class"): float(element.get("width", "")) for element in rects}
    assert widths["B"] == pytest.approx(2 * widths["F"] + 1, abs=0.2)


def test_panels_share_one_scale_of_time() -> None:
    """A step that takes longer is drawn longer, not narrower."""
    healthy, slow = make_problem(), make_problem(slow="0.0=0.25")
    svg = draw([_panel(healthy), _panel(slow)])
    rects = [element for element in _elements(svg) if len(element) and element.get("class") == "F"]
    at_full_speed = {element.get("width") for element in rects if "on 1." in "".join(element.itertext())}
    assert len(at_full_speed) == 1


def test_dead_slow_and_re_routed_are_marked() -> None:
    """By words beside the row, hatching, an outline and the home pipeline."""
    svg = draw([_panel(make_problem(dead="1.2", slow="0.1=0.5"))])
    words = _words(svg)
    assert {"1.2 dead", "0.1 x0.5"} <= set(words)
    looks = [element.get("class") for element in _elements(svg)]
    assert looks.count("F r") == 6 + 1  # And one in the legend.
    assert looks.count("B r") == 6
    assert looks.count("h") == 12 + 1
    assert looks.count("x") == 1 + 1
    assert {"1.0", "1.5"} <= set(words)


def test_period_makespan_and_lower_bound_are_bracketed() -> None:
    """A plan at its bound is called optimal; one above it shows the bound apart."""
    problem = make_problem()
    assert "period 27 (stage 0)" in _words(draw([_panel(problem)]))
    assert "makespan 27" in _words(draw([_panel(problem)]))
    reached = _words(draw([_panel(problem, lower_bound=27.0)]))
    assert "period 27 (stage 0), the lower bound: proven optimal" in reached
    missed = _words(draw([_panel(problem, lower_bound=18.0)]))
    assert "lower bound of the period 18" in missed


def test_the_picture_needs_nothing_and_follows_the_theme() -> None:
    """No script, no link, no font to load; dark where the reader's theme is."""
    svg = draw([_panel(make_problem(dead="1.2"))])
    assert "prefers-color-scheme:dark" in svg
    assert not re.search(r"href|<script|@import|url\((?!#)", svg)
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]


def test_titles_are_escaped() -> None:
    """Whatever a panel is called, the picture stays well-formed."""
    problem = make_problem(1, 1, 1)
    panel = Panel(title='<b> & "x"', problem=problem, timed=timed_1f1b(problem))
    assert '<b> & "x"' in _words(draw([panel]))


def test_a_middling_job_is_drawn_without_tooltips() -> None:
    """Every worker keeps its row, but a row is a few paths."""
    problem = make_problem(8, 8, 32, dead="2.1")
    svg = draw([_panel(problem, is_split=True)])
    assert _titles(svg) == []
    assert sum(bool(re.fullmatch(r"\d\.\d( dead)?", words)) for words in _words(svg)) == 64
    assert len(svg) < 300_000


def test_a_large_job_is_summed_up_by_stage_and_says_what_is_left_out() -> None:
    """However many workers there are, the picture stays small enough to open."""
    problem = make_problem(40, 8, 40, dead="7.3 9.3 11.5", slow="12.0=0.5")
    svg = draw([_panel(problem, is_split=True)] * 3)
    assert len(svg) < 1_000_000
    words = _words(svg)
    assert words.count("stage 3") == 3
    assert {"2 dead", "1 dead", "1 slow"} <= set(words)
    assert any("of the 40 pipelines; the others are left out." in line for line in words)
    assert "7.3 dead" in words


def test_shares_of_a_stage_fill_its_height_when_all_its_workers_are_busy() -> None:
    """The last stage of 1F1B never waits once it has begun, so its areas reach the top."""
    problem = make_problem(60, 2, 40)
    svg = draw([_panel(problem)])
    bands = [element for element in _elements(svg) if element.get("class") == "idle"][1:]
    areas = [element.get("d", "") for element in _elements(svg) if element.get("class") == "B"][1:]
    for band, area in zip(bands, areas[:2], strict=False):
        heights = [float(point.split()[1]) for point in re.findall(r"[\d.]+ [\d.]+", area)]
        assert min(heights) == float(band.get("y", ""))


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12)),
    costs=st.tuples(*[st.floats(0.001, 1000)] * 3),
)
def test_any_schedule_can_be_drawn_inside_the_frame(
    shape: tuple[int, int, int], costs: tuple[float, float, float]
) -> None:
    """Well-formed, and nothing sticks out to the right."""
    problem = make_problem(*shape, costs=(Costs(*costs),) * shape[1])
    for element in _elements(draw([_panel(problem)])):
        if element.tag.endswith("}rect"):
            assert float(element.get("x", "0")) + float(element.get("width", "0")) <= WIDTH + 0.5


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.03, 0.05), (1, 1), (1.1, 2), (2.5, 5), (7, 10), (10, 10), (99, 100), (60, 100)]
)
def test_ticks_are_at_round_numbers(value: float, rounded: float) -> None:
    """One, two or five times a power of ten, never less than asked for."""
    assert round_up(value) == pytest.approx(rounded)


def test_numbers_are_written_short() -> None:
    """A tenth of a pixel is enough."""
    assert [num(12.0), num(12.04), num(0.25), num(-3.96)] == ["12", "12", "0.2", "-4"]
