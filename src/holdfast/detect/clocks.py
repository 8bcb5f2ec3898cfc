"""How long every worker has stood still: looks in, seconds out; the time of each look is given.

Only what was looked at counts. A look that comes late adds little, and one that comes very late starts every
clock anew: the machine was suspended or starved, and so were the workers. So does a look that finds everybody
stopped, and time in which a worker waited for a processor is not its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.detect.hang import STOPPED, TRACED
from holdfast.telemetry import Status

LATE_S = 1.0
"""How late a look may be; half the shortest time-out there is."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What one look finds of a worker."""

    status: Status
    state: str
    """The kernel's letter for what the process does."""
    runs: int = 0
    """A number that changes when the process has run; only asked for in state T."""
    starved_s: float = 0.0
    """How long it waited for a processor since the last look."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker has stood still."""

    waited_s: float = 0.0
    """In the same generation, step, op and phase, free to get on."""
    stopped_s: float = 0.0
    """In state T, without having run in between."""


class Clocks:
    """The clocks of all workers, by rank."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last_s: float | None = None
        self._before: dict[int, tuple[Sight, Spent]] = {}

    def restart(self) -> None:
        """Start every clock anew with the next look."""
        self._before = {}

    def see(self, now_s: float, sights: Iterable[Sight]) -> dict[int, Spent]:
        """Take in one look and return what every worker's clocks say."""
        sights = list(sights)
        gap_s = now_s - self._last_s if self._last_s is not None else 0.0
        self._last_s = now_s
        if gap_s > self._every_s + LATE_S or all(sight.state == STOPPED for sight in sights):
            self.restart()
        # Two looks prove nothing about what was between them if that was long.
        counted_s = min(gap_s, 2 * self._every_s)
        self._before = {sight.status.rank: (sight, self._advance(sight, counted_s)) for sight in sights}
        return {rank: spent for rank, (_, spent) in self._before.items()}

    def _advance(self, sight: Sight, counted_s: float) -> Spent:
        before, spent = self._before.get(sight.status.rank, (None, Spent()))
        if before is None or before.status.pid != sight.status.pid:
            return Spent()
        waited_s = stopped_s = 0.0
        # One that is held could not get on; nor could what it has made, so its clock is not to be trusted
        # as the age of that either.
        if before.status.place == sight.status.place and sight.state not in (STOPPED, TRACED):
            waited_s = spent.waited_s + max(0.0, counted_s - sight.starved_s)
        if before.state == sight.state == STOPPED and before.runs == sight.runs:
            stopped_s = spent.stopped_s + counted_s
        return Spent(waited_s=waited_s, stopped_s=stopped_s)
