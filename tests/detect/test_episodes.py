"""Episodes follow from changes: when it was slow, by how much, and whether it still is."""

from __future__ import annotations

from typing import Any

from holdfast.detect.episodes import episodes_of
from holdfast.findings import ChangePoint, Episode


def change(step: int, before_s: float, after_s: float, *, is_slow: bool) -> ChangePoint:
    """Return a change that was noticed two steps later."""
    return ChangePoint(
        step=step,
        detected_step=step + 2,
        before_s=before_s,
        after_s=after_s,
        direction="slow" if after_s > before_s else "relief",
        is_slow=is_slow,
        confidence=1.0,
    )


def episodes(*changes: ChangePoint, **more: Any) -> list[Episode]:
    """Return the episodes of a job of 100 steps that is healthy at one second."""
    return episodes_of(changes, **{"healthy_s": 1.0, "slow_s": None, "last_step": 100, **more})


def test_no_change_is_no_episode() -> None:
    """Nothing was slow."""
    assert episodes() == []


def test_slow_until_relief_is_one_episode() -> None:
    """Its end is the first step that was not slow."""
    told = episodes(change(20, 1.0, 2.0, is_slow=True), change(40, 2.0, 1.0, is_slow=False))
    assert told == [Episode(start=20, end=40, slowdown=2.0)]


def test_slow_until_now_has_no_end() -> None:
    """How slow it is now is best known now."""
    assert episodes(change(20, 1.0, 2.0, is_slow=True), slow_s=3.0) == [
        Episode(start=20, end=None, slowdown=3.0)
    ]
    assert episodes(change(20, 1.0, 2.0, is_slow=True)) == [Episode(start=20, end=None, slowdown=2.0)]


def test_a_level_is_what_it_turned_out_to_be() -> None:
    """The next change knows it better than the one that began it."""
    told = episodes(change(20, 1.0, 9.0, is_slow=True), change(40, 2.0, 1.0, is_slow=False))
    assert told[0].slowdown == 2.0


def test_several_levels_are_one_episode_with_their_mean() -> None:
    """Each counts for as many steps as it lasted."""
    told = episodes(
        change(20, 1.0, 2.0, is_slow=True),
        change(30, 2.0, 4.0, is_slow=True),
        change(60, 4.0, 1.5, is_slow=True),
        change(70, 1.5, 1.0, is_slow=False),
    )
    assert told == [Episode(start=20, end=70, slowdown=(10 * 2.0 + 30 * 4.0 + 10 * 1.5) / 50)]


def test_two_faults_are_two_episodes() -> None:
    """The second may still go on."""
    told = episodes(
        change(20, 1.0, 2.0, is_slow=True),
        change(30, 2.0, 1.0, is_slow=False),
        change(50, 1.0, 3.0, is_slow=True),
    )
    assert [(each.start, each.end) for each in told] == [(20, 30), (50, None)]


def test_slowdown_is_against_the_healthy_step() -> None:
    """Whatever the level before the change was."""
    assert episodes(change(20, 1.0, 2.0, is_slow=True), healthy_s=0.5)[0].slowdown == 4.0


def test_a_relief_of_nothing_is_no_episode() -> None:
    """It ends none that was told."""
    assert episodes(change(40, 2.0, 1.0, is_slow=False)) == []


def test_relief_and_hindsight_at_one_step_are_one_long_episode() -> None:
    """Steps 2 to 29 were slow, and so were 30 to 59, as was known later."""
    told = episodes(
        change(2, 1.3, 1.7, is_slow=True),
        change(30, 1.7, 1.3, is_slow=False),
        change(30, 1.0, 1.3, is_slow=True),
        change(60, 1.3, 1.0, is_slow=False),
    )
    assert told[-1].end == 60
    assert sum((each.end or 101) - each.start for each in told) == 58
