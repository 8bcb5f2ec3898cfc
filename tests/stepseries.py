"""Step times of jobs that never ran: a level, some noise, and whatever a test does to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from holdfast.detect.examine import Detector, Examined, examine
from holdfast.detect.steps import StepDetector
from holdfast.findings import ChangePoint, Episode
from holdfast.telemetry import StepTime

Floats = npt.NDArray[np.float64]
Span = tuple[int, int | None]


def noisy(count: int, *, seed: int = 0, noise: float = 0.02) -> Floats:
    """Return times around one second."""
    return np.exp(np.random.default_rng(seed).normal(0, noise, count))


def levels(*parts: tuple[int, float], seed: int = 0, noise: float = 0.02) -> Floats:
    """Return noisy times whose level is given for so many steps each."""
    factors = np.concatenate([np.full(count, level) for count, level in parts])
    return factors * noisy(len(factors), seed=seed, noise=noise)


def step_times(
    times: Sequence[float] | Floats, work: Sequence[float] | Floats | None = None
) -> list[StepTime]:
    """Return the steps 1, 2, 3, …"""
    return [
        StepTime(step=index + 1, duration_s=float(time), work=None if work is None else float(work[index]))
        for index, time in enumerate(times)
    ]


def found(
    times: Sequence[float] | Floats,
    work: Sequence[float] | Floats | None = None,
    detector: Detector | None = None,
) -> Examined:
    """Return what a detector finds in them; without one, what ``holdfast detect`` uses."""
    return examine(step_times(times, work), StepDetector() if detector is None else detector)


def spans(examined: Examined) -> list[Span]:
    """Return when it was slow."""
    return [(each.start, each.end) for each in examined.episodes]


def told(changes: Sequence[ChangePoint]) -> list[tuple[int, int, str, bool]]:
    """Return all of the changes that has no unit."""
    return [(each.step, each.detected_step, each.direction, each.is_slow) for each in changes]


def assert_sensible(examined: Examined) -> None:
    """Fail if what was told contradicts itself."""
    first, last = examined.steps[0].step, examined.steps[-1].step
    for change in examined.change_points:
        _assert_change(change, first, last)
    noticed = [change.detected_step for change in examined.change_points]
    assert noticed == sorted(noticed)
    for episode in examined.episodes:
        _assert_episode(episode, first, last)
    for one, other in itertools.pairwise(examined.episodes):
        assert one.end is not None, f"{one} goes on, yet {other} follows"
        assert one.end <= other.start


def _assert_change(change: ChangePoint, first: int, last: int) -> None:
    assert first <= change.step <= change.detected_step <= last, change
    assert 0.5 <= change.confidence <= 1, change
    assert math.isfinite(change.before_s), change
    assert math.isfinite(change.after_s), change
    assert (change.direction == "slow") == (change.after_s > change.before_s), change
    assert change.is_slow or change.direction == "relief", change


def _assert_episode(episode: Episode, first: int, last: int) -> None:
    assert first <= episode.start <= last, episode
    assert episode.end is None or episode.start < episode.end <= last, episode
    assert episode.slowdown > 1, episode
