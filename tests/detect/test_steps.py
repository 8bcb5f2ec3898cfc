"""Slow steps are noticed, fast ones are not, and what was told makes sense afterwards."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from holdfast.detect.steps import StepDetector, steps_needed
from holdfast.findings import Episode
from stepseries import Floats, assert_sensible, found, levels, noisy, spans, step_times, told

SEEDS = range(5)


def assert_near(episode: Episode, start: int, end: int) -> None:
    """Fail if an episode does not begin and end where it should, give or take two steps."""
    assert episode.end is not None
    assert [episode.start, episode.end] == pytest.approx([start, end], abs=2)


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_is_never_slow(noise: float, seed: int) -> None:
    """Without noise as with a lot."""
    examined = found(noisy(800, seed=seed, noise=noise))
    assert examined.change_points == []
    assert examined.healthy_s == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize(("factor", "within"), [(1.12, 40), (1.3, 15), (3.0, 5), (100.0, 5)])
def test_a_slower_job_is_told(factor: float, within: int, noise: float) -> None:
    """From the step on where it began, soon after, with the right levels, as long as it lasts."""
    for seed in SEEDS:
        examined = found(levels((150, 1.0), (150, factor), seed=seed, noise=noise))
        (change,), (episode,) = examined.change_points, examined.episodes
        assert change.step == pytest.approx(151, abs=2)
        assert change.detected_step < 151 + within
        assert (change.direction, change.is_slow, change.confidence > 0.99) == ("slow", True, True)
        assert change.after_s / change.before_s == pytest.approx(factor, rel=0.05)
        assert (episode.start, episode.end) == (change.step, None)
        assert episode.slowdown == pytest.approx(factor, rel=0.02)
        assert_sensible(examined)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("factor", [1.12, 1.3, 3.0])
def test_a_job_that_recovers_is_told(factor: float, noise: float) -> None:
    """Slow, then relief; the episode ends where the job was healthy again."""
    for seed in SEEDS:
        examined = found(levels((150, 1.0), (100, factor), (150, 1.0), seed=seed, noise=noise))
        assert [each.direction for each in examined.change_points] == ["slow", "relief"]
        assert [each.is_slow for each in examined.change_points] == [True, False]
        (episode,) = examined.episodes
        assert_near(episode, 151, 251)
        assert_sensible(examined)


@pytest.mark.parametrize("factor", [1.12, 1.3, 3.0])
def test_a_fault_from_the_start_is_told_when_it_goes(factor: float) -> None:
    """In hindsight, from the first steps on; healthy is what came later."""
    for seed in SEEDS:
        examined = found(levels((120, factor), (120, 1.0), seed=seed))
        assert [each.direction for each in examined.change_points] == ["slow", "relief"]
        (episode,) = examined.episodes
        assert_near(episode, 2, 121)
        assert examined.healthy_s == pytest.approx(1, rel=0.02)
        assert_sensible(examined)


def test_warm_up_is_no_fault() -> None:
    """The first step may take minutes, the next ones longer than the others."""
    for seed in SEEDS:
        times = np.concatenate([[90.0], levels((8, 1.4), (300, 1.0), seed=seed)])
        assert found(times).change_points == []


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("long", [[150], [150, 151], [100, 150, 152, 200]])
def test_single_long_steps_are_no_change(long: list[int], noise: float) -> None:
    """One, two in a row, or now and then."""
    for factor in (1.3, 3.0, 50.0):
        times = noisy(300, noise=noise)
        times[long] *= factor
        assert found(times).change_points == []


@pytest.mark.parametrize("every", [10, 30])
@pytest.mark.parametrize("count", [1, 2])
def test_checkpoints_are_no_change(every: int, count: int) -> None:
    """Regular long steps, one or two at a time."""
    for seed in SEEDS:
        times = noisy(600, seed=seed)
        for offset in range(count):
            times[every - 1 + offset :: every] *= 3
        assert found(times).change_points == []


def test_a_fault_among_checkpoints_is_found() -> None:
    """Once."""
    for seed in SEEDS:
        times = levels((305, 1.0), (295, 1.5), seed=seed)
        times[29::30] *= 3
        (change,) = found(times).change_points
        assert change.step == pytest.approx(306, abs=2)


def test_a_ramp_is_told() -> None:
    """Although no step is much slower than the one before."""
    for seed in SEEDS:
        factors = np.concatenate([np.ones(150), np.linspace(1, 1.6, 150), np.full(100, 1.6)])
        examined = found(factors * noisy(400, seed=seed))
        (episode,) = examined.episodes
        assert 150 < episode.start < 220
        assert episode.end is None
        assert_sensible(examined)


def test_a_chain_of_small_steps_is_told() -> None:
    """Each of 6 %, none worth telling by itself."""
    for seed in SEEDS:
        examined = found(levels(*((60, 1.06**power) for power in range(6)), seed=seed))
        (episode,) = examined.episodes
        assert 61 < episode.start <= 182
        assert episode.end is None


def test_a_relief_that_is_not_all_is_told_as_such() -> None:
    """From three times to one and a half is still slow: one episode of two levels."""
    for seed in SEEDS:
        examined = found(levels((100, 1.0), (60, 3.0), (60, 1.5), (60, 1.0), seed=seed))
        assert [(each.direction, each.is_slow) for each in examined.change_points] == [
            ("slow", True),
            ("relief", True),
            ("relief", False),
        ]
        (episode,) = examined.episodes
        assert_near(episode, 101, 221)
        assert episode.slowdown == pytest.approx(2.25, rel=0.03)


@pytest.mark.parametrize("noise", [0.1, 0.2])
def test_a_very_noisy_job_is_not_slow(noise: float) -> None:
    """Steps that scatter by more than what is worth telling need more evidence."""
    for seed in SEEDS:
        assert found(noisy(600, seed=seed, noise=noise)).change_points == []


def test_longer_sequences_are_no_fault() -> None:
    """If the work of each step is known; without it the job looks slow."""
    work = np.repeat(np.linspace(512, 4096, 10), 60)
    times = (0.1 + work / 1000) * noisy(600)
    assert found(times, work).change_points == []
    assert found(times).change_points != []


def test_a_fault_beneath_longer_sequences_is_found() -> None:
    """What remains after the work has been taken out."""
    work = np.random.default_rng(1).choice([512.0, 1024.0, 2048.0, 4096.0], 400)
    times = (0.1 + work / 1000) * levels((200, 1.0), (100, 1.5), (100, 1.0))
    (episode,) = found(times, work).episodes
    assert_near(episode, 201, 301)
    assert episode.slowdown == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize("count", range(1, 21))
def test_short_series_are_met_with_patience(count: int) -> None:
    """There is nothing to tell, and no healthy level before there are ten steps after the first."""
    examined = found(noisy(count))
    assert (examined.change_points, examined.episodes) == ([], [])
    assert (examined.healthy_s is None) == (count < 11)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 60.0, 1e5])
def test_the_unit_of_time_does_not_matter(scale: float) -> None:
    """Only the seconds change with it."""
    for times in _many_kinds():
        here, there = found(times), found(scale * times)
        assert told(there.change_points) == told(here.change_points)
        assert spans(there) == spans(here)
        for one, other in zip(here.change_points, there.change_points, strict=True):
            assert other.before_s == pytest.approx(scale * one.before_s, rel=1e-6)
            assert other.after_s == pytest.approx(scale * one.after_s, rel=1e-6)


def test_steps_may_be_any_numbers_that_grow() -> None:
    """Every tenth, or from a million on: what is told is in their numbers."""
    times = levels((150, 1.0), (100, 1.5), (100, 1.0))
    detector = StepDetector()
    changes = [
        change
        for index, time in enumerate(times.tolist())
        for change in detector.update(1_000_000 + 10 * index, time)
    ]
    assert [change.step for change in changes] == pytest.approx([1_001_500, 1_002_500], abs=20)


def test_streaming_gives_what_examine_gives() -> None:
    """One step at a time, and nothing is told about steps that have not come yet."""
    for times in _many_kinds():
        detector, streamed = StepDetector(), []
        for each in step_times(times):
            news = detector.update(each.step, each.duration_s, each.work)
            assert all(change.detected_step == each.step for change in news)
            streamed += news
        examined = found(times)
        assert streamed == examined.change_points
        assert detector.healthy_s == examined.healthy_s


def test_a_long_fault_is_not_taken_for_work() -> None:
    """After a thousand slow steps the slowdown is what it was."""
    work = np.random.default_rng(1).choice([512.0, 1024.0, 2048.0, 4096.0], 1200)
    (episode,) = found((0.1 + work / 1000) * levels((200, 1.0), (1000, 1.4)), work).episodes
    assert (episode.start, episode.end) == (201, None)
    assert episode.slowdown == pytest.approx(1.4, rel=0.03)


def test_a_higher_threshold_tells_less() -> None:
    """With 1.5, a slowdown of 30 % is fine, and one of 80 % is not."""
    assert found(levels((150, 1.0), (100, 1.3)), detector=StepDetector(slow=1.5)).change_points == []
    assert spans(found(levels((150, 1.0), (100, 1.8)), detector=StepDetector(slow=1.5))) == [(151, None)]


def test_what_is_stronger_needs_fewer_steps() -> None:
    """Between 3 and 20 of them."""
    needed = [steps_needed(float(apart)) for apart in np.linspace(0.001, 5, 200)]
    assert (needed[0], needed[-1]) == (20, 3)
    assert all(later <= sooner for sooner, later in itertools.pairwise(needed))


def _many_kinds() -> list[Floats]:
    return [
        noisy(200, seed=1),
        levels((100, 1.0), (60, 1.3), (60, 1.0), seed=2),
        levels((100, 1.0), (60, 3.0), (60, 1.5), (60, 1.0), seed=3),
        levels((100, 1.5), (100, 1.0), seed=4),
        levels((80, 1.0), (40, 2.0), (80, 1.0), (40, 1.3), (80, 1.0), seed=5),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_job_with_pairs_of_long_steps_may_have_three_of_them_once(seed: int) -> None:
    """Checkpoints take two steps, and the network has a mood just before one: that is no slowdown."""
    times = noisy(800, seed=seed)
    for at in range(50, 800, 50):
        times[at : at + 2] *= 2.5
    times[599] *= 2.0
    assert found(times).change_points == []


@pytest.mark.parametrize("seed", range(5))
def test_a_slowdown_is_noticed_at_once_where_steps_are_even(seed: int) -> None:
    """Without such steps before, three of them are enough."""
    times = levels((300, 1.0), (30, 2.0), seed=seed)
    (change,) = found(times).change_points
    assert change.detected_step - change.step <= 3


def test_what_is_healthy_stays_known() -> None:
    """A job that is as it was, and mildly slow after a few steps: from anew nobody would notice."""
    before, after = levels((150, 1.0), (30, 1.4), seed=3), levels((14, 1.0), (60, 1.15), seed=4)
    anew = StepDetector()
    assert found(after, detector=anew).change_points == []
    detector = StepDetector()
    found(before, detector=detector)
    detector.begin_again()
    (change,) = found(after, detector=detector).change_points
    assert change.step == pytest.approx(15, abs=3)
    assert change.after_s / change.before_s == pytest.approx(1.15, rel=0.03)


def test_a_job_that_goes_on_as_before_is_healthy() -> None:
    """Whatever came between."""
    for seed in SEEDS:
        detector = StepDetector()
        found(levels((150, 1.0), (30, 1.4), seed=seed), detector=detector)
        detector.begin_again()
        assert found(noisy(300, seed=seed + 100), detector=detector).change_points == []
