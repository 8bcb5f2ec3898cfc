"""EROICA's rule does what its paper says, no more."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.detect.eroica import RECENT, WINDOW, EroicaDetector
from stepseries import assert_sensible, found, levels, noisy, spans


@pytest.mark.parametrize("count", [1, 2, WINDOW - 1, WINDOW])
def test_a_window_has_to_be_full(count: int) -> None:
    """Before, nothing is healthy and nothing is slow."""
    examined = found([1.0] * count, detector=EroicaDetector())
    assert examined.change_points == []
    assert examined.healthy_s == (1.0 if count == WINDOW else None)


def test_a_mean_above_the_shortest_step_is_slow() -> None:
    """By 5 %: of 50 steps, the mean passes it with the ninth that takes 30 % longer."""
    examined = found([1.0] * 100 + [1.3] * 100, detector=EroicaDetector())
    (change,) = examined.change_points
    assert (change.step, change.detected_step) == (60, 109)
    assert [change.before_s, change.after_s] == pytest.approx([1, 1 + 9 * 0.3 / WINDOW])
    assert change.is_slow


def test_a_job_that_recovers_is_told() -> None:
    """As soon as the mean is below the line again."""
    examined = found([1.0] * 100 + [1.3] * 100 + [1.0] * 100, detector=EroicaDetector())
    assert [each.direction for each in examined.change_points] == ["slow", "relief"]
    assert examined.change_points[1].detected_step == 242
    assert [each.end is None for each in examined.episodes] == [False]


def test_exactly_on_the_line_is_not_slow() -> None:
    """The mean has to be above it."""
    detector = EroicaDetector(slow=1.5)
    assert found([1.0] * 50 + [1.5] * 50, detector=detector).change_points == []


def test_noise_alone_is_slow() -> None:
    """Its known weakness: of many steps one is lucky."""
    assert found(noisy(300, noise=0.05), detector=EroicaDetector()).change_points != []


def test_a_shortest_step_is_forgotten() -> None:
    """After ten windows a job that stays slow is called healthy."""
    examined = found([1.0] * 60 + [1.3] * (RECENT + 60), detector=EroicaDetector())
    assert [each.is_slow for each in examined.change_points] == [True, False]
    assert examined.healthy_s == 1.3


def test_work_is_not_known_to_it() -> None:
    """Longer sequences look slow."""
    work = np.repeat([1.0, 2.0], 100)
    assert spans(found(work, work, EroicaDetector()))[0][1] is None


@pytest.mark.parametrize("scale", [1e-9, 1e5])
def test_the_unit_of_time_does_not_matter(scale: float) -> None:
    """Only the seconds change with it."""
    times = levels((150, 1.0), (100, 1.3), (150, 1.0))
    here, there = found(times, detector=EroicaDetector()), found(scale * times, detector=EroicaDetector())
    assert spans(here) == spans(there)


def test_what_it_tells_makes_sense() -> None:
    """Episodes are slower than healthy, and the direction is that of the levels."""
    examined = found([1.0] * 60 + [1.3] * (RECENT + 60), detector=EroicaDetector())
    assert_sensible(examined)
    assert [change.direction for change in examined.change_points][:1] == ["slow"]


def test_the_slowdown_of_an_episode_is_what_was_seen() -> None:
    """30 %, over nearly all of it."""
    (episode,) = found([1.0] * 100 + [1.3] * 400 + [1.0] * 100, detector=EroicaDetector()).episodes
    assert episode.slowdown == pytest.approx(1.3, rel=0.05)
