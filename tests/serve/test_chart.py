"""Charts: well-formed, complete, readable without a library, a network or a lucky screen."""

from __future__ import annotations

import itertools
import random
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.serve.axis import Axis
from holdfast.serve.chart import Chart, Panel, Series, draw, page
from holdfast.serve.throughput import draw_study, study_page
from holdfast.simulate.fitting import fit
from holdfast.simulate.models import GPT3_6_7B
from holdfast.simulate.periods import Periods
from holdfast.simulate.study import Study, conduct
from holdfast.simulate.traces import make_fixed

SVG = "{http://www.w3.org/2000/svg}"


def chart_of(*series: Series, is_log: bool = False) -> Chart:
    """One panel of lines."""
    panel = Panel(y_label="seconds", series=series, is_log=is_log)
    return Chart(
        title="A <title>", subtitle=("first", "second"), x_label="workers", panels=(panel,), is_log=is_log
    )


def line(name: str, *values: float, **more: bool) -> Series:
    """Values at 1, 2, 3, …"""
    return Series(name=name, points=tuple((x, y) for x, y in enumerate(values, start=1)), **more)  # type: ignore[arg-type]


def parse(drawing: str) -> ElementTree.Element:
    """The drawing as XML, which it must be."""
    return ElementTree.fromstring(drawing)


def texts(drawing: str) -> list[str]:
    """All words of a drawing."""
    return [element.text or "" for element in parse(drawing).iter(f"{SVG}text")]


def groups(drawing: str) -> dict[str, ElementTree.Element]:
    """The groups of a drawing, by the name of their line."""
    return {
        (group.find(f"{SVG}text").text or ""): group  # type: ignore[union-attr]
        for group in parse(drawing).iter(f"{SVG}g")
    }


def test_chart_has_its_words() -> None:
    """Title, lines below it, both axes and every name, with special characters escaped."""
    words = texts(draw(chart_of(line("mine & yours", 1, 2, 3))))
    for expected in ("A <title>", "first", "second", "seconds", "workers", "mine & yours"):
        assert expected in words


def test_every_point_is_drawn() -> None:
    """A line goes through all points; a stepped one keeps each value until the next."""
    drawn = groups(draw(chart_of(line("plain", 1, 5, 3), line("steps", 2, 4, 1, is_step=True))))
    plain = drawn["plain"].findall(f"{SVG}path")[1].get("d") or ""
    steps = drawn["steps"].findall(f"{SVG}path")[1].get("d") or ""
    assert (plain.count("M"), plain.count("L")) == (1, 2)
    assert (steps.count("M"), steps.count("H"), steps.count("V")) == (1, 2, 2)


def test_main_line_is_on_top_and_references_below() -> None:
    """What is drawn later hides what is drawn earlier."""
    chart = chart_of(
        line("main", 1, 2, is_main=True), line("other", 2, 1), line("ideal", 3, 3, is_reference=True)
    )
    drawn = groups(draw(chart))
    assert list(drawn) == ["ideal", "other", "main"]
    assert [group.get("class") for group in drawn.values()] == ["l ref", "l c1", "l main c0"]


def test_colours_stay_with_their_series() -> None:
    """A line with a colour of its own has the same one in every chart."""
    mine = Series(name="mine", points=((0, 1),), colour=3)
    for others in ([], [line("a", 1), line("b", 1)]):
        assert groups(draw(chart_of(*others, mine)))["mine"].get("class") == "l c4"


def test_light_and_dark_have_their_own_colours() -> None:
    """The drawing itself carries both, and paper to stand on."""
    drawing = draw(chart_of(line("a", 1, 2)))
    assert "prefers-color-scheme:dark" in drawing
    assert 'class="paper"' in drawing


def test_drawing_needs_nothing_from_elsewhere() -> None:
    """No script, no font, no address but the name of the format."""
    whole = page("t", [draw(chart_of(line("a", 1, 2)))], ["a note with <b>"])
    addresses = re.findall(r"https?://[^\s\"']+", whole)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in whole
    assert "<p>a note with &lt;b&gt;</p>" in whole


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=12))
def test_labels_do_not_lie_on_each_other(values: list[float]) -> None:
    """Whatever the ends of the lines, names keep a line's height between them."""
    drawing = draw(chart_of(*(line(f"n{index}", value) for index, value in enumerate(values))))
    heights = sorted(
        float(group.find(f"{SVG}text").get("y") or 0)  # type: ignore[union-attr]
        for group in parse(drawing).iter(f"{SVG}g")
    )
    assert len(heights) == len(values)
    assert all(below - above >= 16.8 for above, below in itertools.pairwise(heights))


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6))
def test_linear_axis_has_a_few_round_ticks_inside(low: float, span: float) -> None:
    """Between 4 and 10 ticks, from the lowest value or 0 to the highest or 0."""
    axis = Axis.over([low, low + span], (0, 300))
    ticks = axis.ticks()
    assert 4 <= len(ticks) <= 10
    assert all(-0.01 <= axis(tick) <= 300.01 for tick in ticks)
    assert len(Axis.over([low, low + span], (0, 60)).ticks()) <= 4


@given(low=st.floats(1e-6, 1e3), factor=st.floats(10, 1e9))
def test_log_axis_has_powers_of_ten(low: float, factor: float) -> None:
    """Each decade inside has a tick, and places are even in the logarithm."""
    axis = Axis.over([low, low * factor], (0, 100), is_log=True)
    ticks = axis.ticks()
    assert len(ticks) >= 1
    assert all(-0.1 <= axis(tick) <= 100.1 for tick in ticks)
    assert axis((low * low * factor) ** 0.5) == pytest.approx(50)


def test_axis_of_one_value_has_room() -> None:
    """A single value, or none but 0, is no reason to divide by zero."""
    assert Axis.over([0.0], (0, 100)).ticks()
    assert Axis.over([5.0], (0, 100), is_log=True)(5.0) == 0


@pytest.mark.parametrize(
    ("chart", "message"),
    [
        (chart_of(Series(name="empty", points=())), "a line without points"),
        (chart_of(line("zero", 0, 1), is_log=True), "logarithmic axis with the value 0"),
        (chart_of(line("odd", 1, float("nan"))), "not all finite"),
    ],
)
def test_impossible_chart_is_refused(chart: Chart, message: str) -> None:
    """Rather than drawn wrong."""
    with pytest.raises(ValueError, match=message):
        draw(chart)


@pytest.fixture(scope="module")
def study() -> Study:
    """A short run of a few strategies."""
    trace = make_fixed(nodes=32, every_s=900, rng=random.Random(0))
    periods = Periods(dp=4, pp=8, microbatches=16)
    names = ("holdfast", "oobleck", "bamboo", "fault-scaled", "fault-free")
    return conduct(GPT3_6_7B, periods, fit(trace, 32, random.Random(0)), names)


def test_figure_of_a_study_has_every_strategy_and_the_workers(study: Study) -> None:
    """Each that ran is labelled with its share of fault-free; those that did not run are not drawn."""
    words = texts(draw_study(study, "the story"))
    labels = [word for word in words if "%" in word and ";" not in word]
    assert [label.split()[0] for label in labels] == ["fault-scaled", "fault-free", "oobleck", "holdfast"]
    assert "fault-free 100% net" in labels
    assert any("computing, some of it redone later" in word for word in words)
    assert "workers" in words
    assert "the story" in words


def test_page_of_a_study_says_what_is_modelled(study: Study) -> None:
    """Also why a strategy is missing."""
    whole = study_page(study, draw_study(study, ""))
    for result in study.results:
        assert f"<p>{result.name}: " in whole
    assert "bamboo: out of memory." in whole
