"""The picture of a run is an SVG that stands alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from holdfast.cli.picture import draw
from holdfast.lab.story import Recovery, Story
from holdfast.telemetry import Step

DURATIONS_S = [0.1] * 20 + [1.5] + [0.15] * 20
STEPS = [
    Step(rank=0, step=number, ended_s=5 + sum(DURATIONS_S[: number + 1]), duration_s=duration_s)
    for number, duration_s in enumerate(DURATIONS_S)
]
RECOVERY = Recovery(rank=3, worker="1.1", died_s=7.1, resumed_s=STEPS[20].ended_s, pause_s=1.35)
STORY = Story(before_s=0.1, after_s=0.15, recoveries=[RECOVERY], planned_ratio=1.5)


def _elements(svg: str, kind: str) -> list[ET.Element]:
    tag, _, look = kind.partition(".")
    return [
        each
        for each in ET.fromstring(svg).iter()
        if each.tag.endswith("}" + tag) and each.get("class", "") == look
    ]


def test_a_death_is_a_line_and_a_band_between_two_curves() -> None:
    """The band reaches from the death to the end of the step that it cut short."""
    svg = draw(STEPS, STORY)
    [band], [line] = _elements(svg, "rect.pause"), _elements(svg, "line.dead")
    assert band.get("x") == line.get("x1")
    share = (RECOVERY.resumed_s - RECOVERY.died_s) / (STEPS[-1].ended_s - 5)
    assert float(band.get("width", "")) == pytest.approx(share * (880 - 72 - 24), abs=0.1)
    curves = [each.get("points", "").split() for each in _elements(svg, "polyline.l")]
    assert [len(points) for points in curves] == [20, 20]


def test_the_words_say_who_died_what_it_cost_and_the_medians() -> None:
    """And that the accelerators are emulated."""
    words = "".join(ET.fromstring(draw(STEPS, STORY)).itertext())
    for part in ("1.1 killed, 1.35 s lost", "median 100 ms", "median 150 ms", "emulated"):
        assert part in words


def test_a_run_without_a_death_is_one_curve() -> None:
    """Nothing is marked in it."""
    svg = draw(STEPS[:20], Story(before_s=0.1, after_s=None, recoveries=[], planned_ratio=1.0))
    assert len(_elements(svg, "polyline.l")) == len(_elements(svg, "line.m")) == 1
    assert not _elements(svg, "rect.pause")


def test_the_picture_needs_nothing_and_follows_the_theme() -> None:
    """No link, no script; dark where the reader's theme is."""
    svg = draw(STEPS, STORY)
    assert "href" not in svg
    assert "prefers-color-scheme:dark" in svg


def test_a_run_without_steps_cannot_be_drawn() -> None:
    """It says so instead of drawing an empty frame."""
    with pytest.raises(ValueError, match="no steps"):
        draw([], STORY)
