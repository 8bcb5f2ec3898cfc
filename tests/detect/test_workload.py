"""What a step had to do is taken out of its time, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.detect.workload import Workload
from stepseries import Floats, levels, noisy

WORKS = (512.0, 1024.0, 2048.0, 4096.0)


def normalised(times: Floats, work: Floats, *, learns: bool = True) -> Floats:
    """Return the times with the usual work."""
    workload = Workload()
    pairs = zip(times.tolist(), work.tolist(), strict=True)
    return np.array([workload.normalise(time, each, learns=learns) for time, each in pairs])


def works(count: int, *, seed: int = 0) -> Floats:
    """Return works in any order."""
    return np.random.default_rng(seed).choice(WORKS, count)


@pytest.mark.parametrize("work", [None, 0.0, -1.0])
def test_without_work_a_time_stays_as_it_is(work: float | None) -> None:
    """Whether it learns or not."""
    workload = Workload()
    assert [workload.normalise(time, work, learns=time > 1) for time in (0.5, 1.5)] == [0.5, 1.5]


@pytest.mark.parametrize(("fixed_s", "per_work_s"), [(0.0, 1e-3), (0.5, 1e-3), (2.0, 1e-5), (1.0, 0.0)])
def test_a_job_as_it_should_be_is_flat(fixed_s: float, per_work_s: float) -> None:
    """Whatever part of its time depends on the work, once that has been learnt."""
    work = works(200)
    flat = normalised(fixed_s + per_work_s * work, work)[20:]
    assert flat.max() / flat.min() < 1.01


def test_equal_work_changes_next_to_nothing() -> None:
    """Times stay what they are, within a hundredth."""
    times = noisy(200)
    assert normalised(times, np.full(200, 4096.0)) == pytest.approx(times, rel=0.01)


def test_equal_work_changes_nothing() -> None:
    """Two expectations of the same work are equal, also for a long step while few are known."""
    times = np.ones(12)
    times[9] = 1.4
    assert normalised(times, np.full(12, 4096.0)) == pytest.approx(times, rel=1e-6)


def test_a_fault_stays_visible() -> None:
    """It is no work; while it lasts nothing is learnt."""
    work = works(300)
    times = (0.1 + work / 1000) * levels((200, 1.0), (100, 1.5))
    workload = Workload()
    flat = np.array(
        [
            workload.normalise(float(time), float(each), learns=index < 200)
            for index, (time, each) in enumerate(zip(times, work, strict=True))
        ]
    )
    assert np.median(flat[200:]) / np.median(flat[50:200]) == pytest.approx(1.5, rel=0.02)


def test_a_very_long_step_teaches_nothing() -> None:
    """The times of all others are the same with and without it."""
    work = works(200)
    times = (0.1 + work / 1000) * noisy(200)
    spoilt = times.copy()
    spoilt[100] *= 20
    plain, other = normalised(times, work), normalised(spoilt, work)
    assert np.delete(other, 100) == pytest.approx(np.delete(plain, 100), rel=0.01)
    assert other[100] == pytest.approx(20 * plain[100], rel=0.01)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6, 1e18])
def test_the_unit_of_work_does_not_matter(scale: float) -> None:
    """Tokens, samples or operations."""
    work = works(200)
    times = (0.1 + work / 1000) * noisy(200)
    assert normalised(times, scale * work) == pytest.approx(normalised(times, work), rel=1e-6)


def test_the_unit_of_time_does_not_matter() -> None:
    """Nanoseconds or days."""
    work = works(200)
    times = (0.1 + work / 1000) * noisy(200)
    for scale in (1e-9, 1e5):
        assert normalised(scale * times, work) == pytest.approx(scale * normalised(times, work), rel=1e-6)


def test_a_time_that_falls_with_the_work_stays_positive() -> None:
    """Such a fit makes no sense beyond what was seen, and no time becomes 0 or less."""
    work = works(200)
    times = np.concatenate([5 - work / 1000, np.full(5, 1.0)])
    flat = normalised(times, np.concatenate([work, np.full(5, 1e6)]))
    assert bool(np.isfinite(flat).all())
    assert flat.min() > 0


@pytest.mark.parametrize("work", [1e-300, 1e300])
def test_no_work_is_too_small_or_too_large(work: float) -> None:
    """A number that a file can hold is no error later."""
    flat = normalised(noisy(50), np.full(50, work))
    assert flat == pytest.approx(noisy(50), rel=0.01)
