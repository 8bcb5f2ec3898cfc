"""Lasting: changes are told when they have lasted, and never if they have not."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.detect.lasting import LASTING_S, LOST_S, Lasting
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
SLOWER, LESS_SLOW = change(40, "slow", is_slow=True), change(60, "relief", is_slow=True)


def take(
    lasting: Lasting, changes: Sequence[ChangePoint], now_s: float, *, share: float = 0.5
) -> list[ChangePoint] | None:
    """Give changes that were known as soon as they began."""
    return lasting.take(changes, since_s=now_s, now_s=now_s, share=share)


def test_a_slowdown_is_told_when_it_has_lasted() -> None:
    """Once; its end is told at once."""
    lasting = Lasting()
    assert take(lasting, [SLOW], 10.0) == []
    assert take(lasting, [], 10.0 + 0.9 * LASTING_S) == []
    assert take(lasting, [], 10.0 + LASTING_S) == [SLOW]
    assert take(lasting, [], 30.0) == []
    assert take(lasting, [RELIEF], 31.0) == [RELIEF]


def test_a_slowdown_of_long_steps_is_told_at_once() -> None:
    """It has lasted by the time that it is known."""
    assert Lasting().take([SLOW], since_s=10.0, now_s=10.0 + LASTING_S, share=0.5) == [SLOW]


def test_a_bump_is_nothing() -> None:
    """Neither its begin nor its end is told, and the next slowdown is told as ever."""
    lasting = Lasting()
    assert take(lasting, [SLOW], 10.0) == []
    assert take(lasting, [SLOWER], 11.0) == []
    assert take(lasting, [RELIEF], 10.0 + 0.9 * LASTING_S) == []
    assert take(lasting, [], 100.0) == []
    assert take(lasting, [SLOW], 200.0) == []
    assert take(lasting, [], 200.0 + LASTING_S) == [SLOW]


def test_what_was_bad_for_a_moment_alone_is_not_told() -> None:
    """A burst that leaves the job a little slower than before is held back until it is slow, or over."""
    lasting = Lasting()
    assert take(lasting, [SLOW], 10.0) == []
    assert take(lasting, [], 10.0 + 2 * LASTING_S, share=0.05) == []
    assert take(lasting, [], 10.0 + 3 * LASTING_S) == [SLOW]
    assert take(lasting, [RELIEF], 80.0, share=0.0) == [RELIEF]


def test_the_end_of_what_was_told_is_told() -> None:
    """Also if it had got worse just before."""
    lasting = Lasting()
    assert take(lasting, [SLOW], 10.0) == []
    assert take(lasting, [], 10.0 + LASTING_S) == [SLOW]
    assert take(lasting, [SLOWER], 50.0) == []
    assert take(lasting, [RELIEF], 51.0, share=0.0) == [RELIEF]
    assert take(lasting, [SLOW], 60.0) == []
    assert take(lasting, [RELIEF], 61.0, share=0.05) == []


def test_a_mild_slowdown_is_given_more_time() -> None:
    """Until it has cost as much as a strong one."""
    lasting = Lasting()
    assert take(lasting, [SLOW], 10.0, share=0.1) == []
    assert take(lasting, [], 10.0 + 0.9 * LOST_S / 0.1, share=0.1) == []
    assert take(lasting, [], 10.0 + 1.1 * LOST_S / 0.1, share=0.1) == [SLOW]


def test_a_slowdown_that_changes_is_told_whole() -> None:
    """All that happened since it began, in order."""
    lasting = Lasting()
    assert take(lasting, [SLOW], 10.0) == []
    assert take(lasting, [SLOWER], 11.0) == []
    assert take(lasting, [LESS_SLOW], 10.0 + LASTING_S) == [SLOW, SLOWER, LESS_SLOW]


def test_a_job_that_stays_fast_had_been_slow() -> None:
    """Both changes are told, once, when it has been fast for long enough, however long it was slow."""
    lasting = Lasting()
    assert lasting.take([SLOW, RELIEF], since_s=1.0, now_s=10.0, share=0.0) == []
    assert take(lasting, [], 10.0 + 0.9 * LASTING_S) == []
    assert take(lasting, [], 10.0 + LASTING_S) == [SLOW, RELIEF]
    assert take(lasting, [], 100.0) == []


def test_a_good_second_is_nothing() -> None:
    """A job that is soon as slow as before is as it always was; afterwards all goes on as usual."""
    lasting = Lasting()
    assert take(lasting, [SLOW, RELIEF], 10.0) == []
    assert take(lasting, [change(95, "slow", is_slow=True)], 12.0) is None
    assert take(lasting, [SLOW], 20.0) == []
    assert take(lasting, [], 20.0 + LASTING_S) == [SLOW]
