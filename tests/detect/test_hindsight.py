"""Hindsight: that a job had been slow all along is told only once it has stayed fast."""

from __future__ import annotations

from holdfast.detect.hindsight import LASTING_S, Hindsight
from holdfast.findings import ChangePoint, Direction


def change(step: int, direction: Direction, *, is_slow: bool) -> ChangePoint:
    return ChangePoint(
        step=step,
        detected_step=step + 10,
        before_s=1.0,
        after_s=1.2,
        direction=direction,
        is_slow=is_slow,
        confidence=1.0,
    )


SLOW, RELIEF = change(5, "slow", is_slow=True), change(80, "relief", is_slow=False)


def test_a_slowdown_that_goes_on_is_told_at_once() -> None:
    """There is no hindsight in it."""
    hindsight = Hindsight()
    assert hindsight.take([SLOW], 10.0) == [SLOW]
    assert hindsight.take([], 11.0) == []
    assert hindsight.take([RELIEF], 12.0) == [RELIEF]


def test_a_job_that_stays_fast_had_been_slow() -> None:
    """Both changes are told, once, when it has been fast for long enough."""
    hindsight = Hindsight()
    assert hindsight.take([SLOW, RELIEF], 10.0) == []
    assert hindsight.take([], 10.0 + 0.9 * LASTING_S) == []
    assert hindsight.take([], 10.0 + LASTING_S) == [SLOW, RELIEF]
    assert hindsight.take([], 100.0) == []


def test_a_good_second_is_nothing() -> None:
    """A job that is soon as slow as before is as it always was; afterwards all goes on as usual."""
    hindsight = Hindsight()
    assert hindsight.take([SLOW, RELIEF], 10.0) == []
    assert hindsight.take([change(95, "slow", is_slow=True)], 12.0) is None
    assert hindsight.take([SLOW], 20.0) == [SLOW]
