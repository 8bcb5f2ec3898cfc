"""The figure of a series: well-formed, complete, of bounded size, whatever the steps."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.detect.examine import Examined
from holdfast.findings import Episode
from holdfast.serve.steps import MOST_POINTS, draw_steps, steps_page
from holdfast.telemetry import StepTime
from stepseries import Floats, found, levels, noisy, step_times

SVG = "{http://www.w3.org/2000/svg}"
SLOW = levels((100, 1.0), (60, 1.5), (60, 1.0))
TWICE = levels((100, 1.0), (60, 1.5), (60, 1.0), (60, 2.0))


def groups(drawing: str) -> dict[str, ElementTree.Element]:
    """Return the lines of a figure by name; it must be XML for that."""
    elements = ElementTree.fromstring(drawing).iter(f"{SVG}g")
    return {(element.find(f"{SVG}title").text or ""): element for element in elements}  # type: ignore[union-attr]


def words(drawing: str) -> list[str]:
    """Return all words of a figure."""
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def path_of(drawing: str, name: str) -> list[tuple[float, float]]:
    """Return the points of a line."""
    path = groups(drawing)[name].findall(f"{SVG}path")[-2].get("d") or ""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+),([-\d.]+)", path)]


def plain(times: Floats) -> Examined:
    """Return steps in which nothing was found."""
    return Examined(steps=step_times(times), change_points=[], episodes=[], healthy_s=1.0)


def test_a_figure_has_its_lines_and_words() -> None:
    """Times, the healthy level with its value, one shade, and what the file is called, escaped."""
    drawing = draw_steps([found(SLOW)], "a <b> & c.csv")
    assert [name.split(" 1")[0] for name in groups(drawing)] == ["slow", "healthy", "step time"]
    said = words(drawing)
    for expected in (
        "Step times",
        "a <b> & c.csv",
        "1 slow episode, grey behind the line",
        "step",
        "seconds",
    ):
        assert expected in said


@pytest.mark.parametrize(
    ("times", "said"), [(TWICE, "2 slow episodes, grey behind the line"), (noisy(50), "never slow")]
)
def test_episodes_are_counted_in_words(times: Floats, said: str) -> None:
    """Several, or none."""
    assert said in words(draw_steps([found(times)], "x"))


def test_every_attempt_with_episodes_has_one_shade() -> None:
    """However many episodes it has; an attempt without any has none."""
    drawing = draw_steps([found(TWICE), found(noisy(50)), found(SLOW)], "x")
    names = list(groups(drawing))
    assert sorted(name for name in names if name.startswith("slow")) == ["slow 1", "slow 3"]
    assert sorted(name for name in names if name.startswith("step time")) == [
        f"step time {number}" for number in (1, 2, 3)
    ]


def test_attempts_follow_each_other() -> None:
    """None lies over another, though their steps repeat."""
    drawing = draw_steps([plain(noisy(100)), plain(noisy(80))], "x")
    first, second = path_of(drawing, "step time 1"), path_of(drawing, "step time 2")
    assert max(x for x, _ in first) < min(x for x, _ in second)


def test_an_episode_that_goes_on_is_shaded_to_the_end() -> None:
    """As far as the line goes."""
    drawing = draw_steps([found(levels((100, 1.0), (60, 1.5)))], "x")
    shade, line = path_of(drawing, "slow"), path_of(drawing, "step time")
    assert max(x for x, _ in shade) == max(x for x, _ in line)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_steps_are_drawn(count: int) -> None:
    """One is a point."""
    assert len(path_of(draw_steps([found(noisy(count))], "x"), "step time")) == count


def test_many_steps_make_no_large_figure() -> None:
    """Of a hundred thousand, no more points are drawn than can be seen."""
    drawing = draw_steps([plain(noisy(100_000))], "x")
    assert len(path_of(drawing, "step time")) <= MOST_POINTS
    assert len(drawing) < 200_000


def test_a_few_very_long_steps_do_not_flatten_the_others() -> None:
    """They are cut off; the healthy level stays in the upper half, and no point leaves the figure."""
    times = noisy(1000)
    times[[0, 500, 700]] = 90.0, 1e6, 1e300
    drawing = draw_steps([plain(times)], "x")
    heights = [y for _, y in path_of(drawing, "step time")]
    top, bottom = 74 + 2 * 19, 74 + 2 * 19 + 360
    assert all(top <= y <= bottom for y in heights)
    assert float(np.median(heights)) < (top + bottom) / 2


@pytest.mark.parametrize("scale", [1e-9, 1e5])
def test_no_unit_of_time_breaks_the_figure(scale: float) -> None:
    """The line has the same shape."""
    here = path_of(draw_steps([found(SLOW)], "x"), "step time")
    there = path_of(draw_steps([found(scale * SLOW)], "x"), "step time")
    assert len(there) == len(here)
    assert np.array(there)[:, 0] == pytest.approx(np.array(here)[:, 0], abs=0.2)


def test_a_page_holds_the_figure_and_escapes_the_name() -> None:
    """And needs nothing else."""
    whole = steps_page(draw_steps([found(SLOW)], "<x>"), "<x>")
    assert "<title>Step times of &lt;x&gt;</title>" in whole
    assert whole.count("<svg") == 1
    assert "<script" not in whole


def test_steps_far_apart_are_drawn() -> None:
    """Step numbers are places on the axis, not a count."""
    steps = [StepTime(step=step, duration_s=1.0) for step in (5, 10**9)]
    episode = Episode(start=5, end=None, slowdown=2.0)
    examined = Examined(steps=steps, change_points=[], episodes=[episode], healthy_s=0.5)
    assert len(path_of(draw_steps([examined], "x"), "step time")) == 2


def test_a_short_episode_is_not_cut_off() -> None:
    """Four steps of 10 s among a thousand of 1 s are an episode, and its height can be seen."""
    times = np.ones(1000)
    times[500:504] = 10.0
    examined = plain(times)
    examined = Examined(
        steps=examined.steps,
        change_points=[],
        episodes=[Episode(start=501, end=505, slowdown=10.0)],
        healthy_s=1.0,
    )
    heights = [y for _, y in path_of(draw_steps([examined], "x"), "step time")]
    assert (472 - min(heights)) / (472 - max(heights)) == pytest.approx(10, rel=0.1)


def test_an_episode_in_a_very_long_series_can_be_seen() -> None:
    """Ten slow steps of a hundred thousand leave a mark on the line, not only a shade."""
    times = noisy(100_000)
    times[50_000:50_010] *= 1.2
    heights = [y for _, y in path_of(draw_steps([plain(times)], "x"), "step time")]
    assert (472 - min(heights)) / (472 - float(np.median(heights))) > 1.15


def test_the_axis_has_the_numbers_of_the_steps() -> None:
    """A job that was resumed begins at a later one."""
    steps = [StepTime(step=5000 + step, duration_s=1.0) for step in range(500)]
    drawing = draw_steps([Examined(steps=steps, change_points=[], episodes=[], healthy_s=1.0)], "x")
    assert any(word.replace(",", "") in ("5100", "5200", "5250") for word in words(drawing))


def test_the_healthy_level_can_be_seen_in_an_episode() -> None:
    """What is drawn later hides what is drawn earlier, and it is there that people compare."""
    names = list(groups(draw_steps([found(SLOW)], "x")))
    assert names.index("slow") < next(index for index, name in enumerate(names) if name.startswith("healthy"))


def test_labels_of_many_attempts_stay_inside() -> None:
    """A job that was started twelve times is not unusual."""
    drawing = draw_steps([found(SLOW)] * 12, "x")
    heights = [float(element.get("y") or 0) for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]
    assert min(heights) > 0
