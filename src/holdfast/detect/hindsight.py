"""Holds back the news that a job had been slow all along, until it has been faster for some time.

A job that gets faster shows in hindsight that it had been slow; so does one on a busy machine that has a good
second or two. Only the first stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.findings import ChangePoint

LASTING_S = 5.0


class Hindsight:
    """A filter between a detector of changes and those who are told."""

    def __init__(self) -> None:
        self._held: list[ChangePoint] = []
        self._since_s = 0.0

    def take(self, changes: Sequence[ChangePoint], now_s: float) -> list[ChangePoint] | None:
        """Return what may be told now; None: what was held was nothing, the detector has to begin anew."""
        if self._held:
            if any(change.is_slow for change in changes):
                self._held = []
                return None
            self._held += changes
            if now_s - self._since_s < LASTING_S:
                return []
            told, self._held = self._held, []
            return told
        if _is_hindsight(changes):
            self._held, self._since_s = list(changes), now_s
            return []
        return list(changes)


def _is_hindsight(changes: Sequence[ChangePoint]) -> bool:
    """Say whether a slowdown becomes known only with its end."""
    return len(changes) > 1 and changes[0].direction == "slow" and not changes[-1].is_slow
