"""When a dead worker is started again, for a job that others keep going: soon, then later and later."""

from __future__ import annotations

WAITS_S = (0.0, 1.0, 5.0, 20.0, 60.0)
"""Before each start of a worker that keeps dying; after the last it stays away."""
STEADY_S = 120.0
"""One that lived for so long has not died of its start."""


class Returns:
    """Who is to be started again, and when; times are of one clock."""

    def __init__(self) -> None:
        self._due_s: dict[int, float] = {}
        self._deaths: dict[int, int] = {}
        """How often each rank has died in a row, soon after its start."""

    def died(self, rank: int, *, lived_s: float, now_s: float) -> float | None:
        """Take in a death; return how long it will stay away, None: for good."""
        count = self._deaths.get(rank, 0) if lived_s < STEADY_S else 0
        self._deaths[rank] = count + 1
        if count == len(WAITS_S):
            return None
        self._due_s[rank] = now_s + WAITS_S[count]
        return WAITS_S[count]

    def due(self, now_s: float) -> list[int]:
        """Return those whose time has come, each once."""
        ranks = [rank for rank, due_s in sorted(self._due_s.items()) if due_s <= now_s]
        for rank in ranks:
            del self._due_s[rank]
        return ranks
