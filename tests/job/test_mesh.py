"""How a wait for a collective ends: well, badly, or not yet."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.job.mesh import PeerLostError, finished


class Work:
    """A collective whose waits end as told, one after the other; gloo's cannot be made to end in a moment."""

    def __init__(self, *waits: str, is_completed: bool) -> None:
        self._waits = list(waits)
        self._is_completed = is_completed

    def wait(self, timeout: timedelta) -> None:
        """Return, or raise what gloo would."""
        words = self._waits.pop(0)
        if words:
            raise RuntimeError(words)

    def is_completed(self) -> bool:
        """Say whether it has ended, in whatever way."""
        return self._is_completed


def test_collective_that_ends_just_after_the_time_was_up_has_ended_well() -> None:
    """The time is up, then it ends, then it is asked whether it has: that is no failure."""
    assert finished(Work("Operation timed out!", "", is_completed=True))


def test_collective_that_takes_longer_is_not_finished() -> None:
    """The time is up and it goes on."""
    assert not finished(Work("Operation timed out!", is_completed=False))


def test_collective_that_failed_is_a_lost_peer() -> None:
    """It says why, however often it is asked."""
    words = "Connection closed by peer"
    with pytest.raises(PeerLostError, match=words):
        finished(Work(words, words, is_completed=True))
