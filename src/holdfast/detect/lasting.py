"""Holds back the news of a change until it has lasted: what is over within seconds is nobody's concern.

A host is busy with something else for two seconds, and a job of short steps feels it for thirty of them. And
a job that gets faster shows in hindsight that it had been slow all along; so does one that has a good second.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.detect.steps import SLOW
from holdfast.findings import ChangePoint

LASTING_S = 5.0
LOST_S = 2.0
"""What a slowdown must have cost besides: a mild one is given more time to be over."""
LEAST_SHARE = 1 - 1 / SLOW
"""Of the time, that is lost while a job is slow."""


class Lasting:
    """A filter between a detector of changes and those who are told."""

    def __init__(self) -> None:
        self._held: list[ChangePoint] = []
        self._since_s = 0.0
        self._is_told = False
        """That the job is slow."""

    def take(
        self, changes: Sequence[ChangePoint], *, since_s: float, now_s: float, share: float
    ) -> list[ChangePoint] | None:
        """Take in changes, the first of which began then, or none; return what may be told now.

        ``share`` is what part of the time is lost at the level of now: a slowdown may have begun with its
        worst. None: the job had only been fast for a moment, and the detector has to begin anew.
        """
        if not self._held:
            if not _is_news(changes):
                return self._told(changes)
            # That a job had been slow is true if it stays fast from now on.
            self._held, self._since_s = list(changes), since_s if changes[-1].is_slow else now_s
        elif changes:
            was_slow = self._held[-1].is_slow
            if was_slow != changes[-1].is_slow:
                self._held = []
                # What had been told before it got worse for a moment is over now.
                return (self._told(changes[-1:]) if self._is_told else []) if was_slow else None
            self._held += changes
        lasted_s = now_s - self._since_s
        is_mild = share < LEAST_SHARE or share * lasted_s < LOST_S
        if lasted_s < LASTING_S or (self._held[-1].is_slow and is_mild):
            return []
        told, self._held = self._held, []
        return self._told(told)

    def _told(self, changes: Sequence[ChangePoint]) -> list[ChangePoint]:
        self._is_told = changes[-1].is_slow if changes else self._is_told
        return list(changes)


def _is_news(changes: Sequence[ChangePoint]) -> bool:
    """Say whether a slowdown begins with it, or becomes known only with its end."""
    return any(change.direction == "slow" for change in changes)
