"""Series that no job should have: nothing breaks, and what is told does not contradict itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.detect.steps import StepDetector
from stepseries import Floats, assert_sensible, found, levels, noisy, spans, told


def any_job(seed: int) -> Floats:
    """Return a job whose level jumps now and then."""
    rng = np.random.default_rng(seed)
    times = np.exp(rng.normal(0, rng.choice([0.005, 0.02, 0.05, 0.1]), int(rng.integers(20, 400))))
    at = 0
    while at < len(times):
        count = int(rng.integers(1, 80))
        times[at : at + count] *= rng.choice([1, 1, 1.06, 1.12, 1.3, 1.5, 2, 3])
        at += count
    return times


@pytest.mark.parametrize("seed", range(60))
def test_changes_make_sense_one_by_one(seed: int) -> None:
    """Noticed after they began, in the order of noticing, in the direction of the levels."""
    examined = found(any_job(seed))
    last = examined.steps[-1].step
    noticed = [change.detected_step for change in examined.change_points]
    assert noticed == sorted(noticed)
    for change in examined.change_points:
        assert 1 <= change.step <= change.detected_step <= last
        assert (change.direction == "slow") == (change.after_s > change.before_s)
        assert change.is_slow or change.direction == "relief"
        assert 0.99 <= change.confidence <= 1
    states = [change.is_slow for change in examined.change_points]
    for before, after in itertools.pairwise(states):
        assert before or after, "healthy twice in a row"


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=120))
@settings(max_examples=60)
def test_no_times_break_it(times: list[float]) -> None:
    """From 1e-300 to 1e300 seconds, in any order."""
    examined = found(times)
    assert examined.healthy_s is None or examined.healthy_s > 0


@given(st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.2, 3.0]), min_size=1, max_size=120))
@settings(max_examples=60)
def test_no_times_without_noise_break_it(times: list[float]) -> None:
    """A few values only, as from a coarse clock."""
    examined = found(times)
    assert examined.healthy_s is None or 0.9 < examined.healthy_s < 3.1


def test_extreme_steps_are_passed_over() -> None:
    """One of 1e300 seconds and one of 1e-300 change nothing else."""
    times = noisy(400)
    times[[150, 300]] = 1e300, 1e-300
    assert found(times).change_points == []


def test_memory_does_not_grow() -> None:
    """Nothing in the detector is longer after 3,000 steps than it may be."""
    detector = StepDetector()
    for index, time in enumerate(levels(*((100, 1.0 + index % 3) for index in range(30)))):
        detector.update(index, float(time))
    assert vars(detector)["_first"] == []
    assert len(vars(detector)["_last"]) == 20
    assert len(vars(vars(detector)["_noise"])["_values"]) == 400


# --- what once went wrong ---------------------------------------------------------------------


def test_three_slow_steps_are_over_when_they_are_over() -> None:
    """A burst that was told ends; the job is not slow for ever."""
    times = np.ones(300)
    times[150:153] = 3.0
    examined = found(times)
    assert_sensible(examined)
    assert spans(examined) in ([], [(151, 154)])


def test_a_job_that_gets_faster_twice_was_slow_until_then() -> None:
    """First 1.7 times as slow as at the end, then 1.3 times."""
    examined = found(levels((100, 1.7), (100, 1.3), (100, 1.0)))
    assert spans(examined)[0][0] == 2
    assert spans(examined)[-1][1] == pytest.approx(201, abs=2)
    assert_sensible(examined)


def test_hindsight_holds_over_an_earlier_episode() -> None:
    """All that came before the healthy time was slow."""
    examined = found(levels((100, 1.0), (60, 1.5), (100, 1.0), (100, 0.7)))
    assert spans(examined)[0][0] == 2
    assert spans(examined)[-1][1] == pytest.approx(261, abs=2)
    assert sum(each.slowdown for each in examined.episodes) > 1.4


@pytest.mark.parametrize("seed", [5, 46, 93])
def test_episodes_make_sense(seed: int) -> None:
    """No episode is faster than healthy, empty, or over before it begins."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(20, 500))
    times = np.exp(rng.normal(0, rng.choice([0, 0.005, 0.02, 0.05, 0.1]), count))
    at = 0
    while at < count:
        length = int(rng.integers(1, 80))
        times[at : at + length] *= rng.choice([1, 1, 1.06, 1.12, 1.3, 1.5, 2, 3, 0.7])
        at += length
    examined = found(times)
    assert_sensible(examined)
    assert all(each.slowdown > 1.05 for each in examined.episodes)


def test_checkpoints_while_slow_are_no_change() -> None:
    """Two of them, of two long steps each: neither lasts for three."""
    times = levels((100, 1.0), (200, 1.5), noise=0.01)
    times[[150, 151, 220, 221]] *= 3
    assert len(found(times).change_points) == 1


@pytest.mark.parametrize("factor", [0.3, 0.5])
def test_pairs_of_quick_steps_make_no_job_slow(factor: float) -> None:
    """A step that was skipped is quick; what came before is as healthy as it was."""
    times = noisy(300, seed=1)
    times[[100, 101, 150, 151, 200, 201]] *= factor
    examined = found(times)
    assert examined.change_points == []
    assert examined.healthy_s == pytest.approx(1, rel=0.02)


def test_three_quick_steps_make_no_job_slow() -> None:
    """Not 300 steps that were all alike."""
    times = noisy(400, seed=1)
    times[300:303] *= 0.4
    examined = found(times)
    assert examined.episodes == []
    assert examined.healthy_s == pytest.approx(1, rel=0.02)


def test_the_unit_of_time_does_not_matter() -> None:
    """Seconds and microseconds of the same clock, with hardly any noise."""
    differing = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        times = np.repeat(rng.choice([1.0, 1.06, 1.12, 1.3, 1.5, 2.0], 8), rng.integers(1, 80, 8))
        times *= np.exp(0.002 * rng.standard_normal(len(times)))
        if told(found(times).change_points) != told(found(1e-6 * times).change_points):
            differing.append(seed)
    assert differing == []
