"""EROICA's rule for a slow job: the mean of the last 50 iterations is above 1.05 x a recent shortest one.

It is simple and quick to notice small changes, and on noisy series it is always true, since a shortest
iteration is a lucky one. How long ago *recent* may be is not published; here ten windows.
"""

from __future__ import annotations

from collections import deque

from holdfast.findings import ChangePoint

WINDOW = 50
RECENT = 10 * WINDOW
SLOW = 1.05


class EroicaDetector:
    """One job's step times, in the order of its steps."""

    def __init__(self, *, slow: float = SLOW) -> None:
        self._slow = slow
        self._window: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._is_slow = False
        self._worst_s = 0.0
        """The highest mean of the current episode, or of the last."""

    @property
    def healthy_s(self) -> float | None:
        """The recent shortest iteration; None: too few of them."""
        return min(self._recent) if len(self._recent) >= WINDOW else None

    @property
    def slow_s(self) -> float | None:
        """How long a step takes now, while the job is slow."""
        return sum(each for _, each in self._window) / len(self._window) if self._is_slow else None

    def update(self, step: int, duration_s: float, work: float | None = None) -> list[ChangePoint]:
        """Take in a step that has ended; return what is now known to have changed."""
        del work  # The rule does not know of it.
        self._window.append((step, duration_s))
        self._recent.append(duration_s)
        shortest_s = self.healthy_s
        if shortest_s is None:
            return []
        mean_s = sum(each for _, each in self._window) / len(self._window)
        was_slow, self._is_slow = self._is_slow, mean_s > self._slow * shortest_s
        if self._is_slow:
            self._worst_s = max(self._worst_s if was_slow else 0.0, mean_s)
        if self._is_slow == was_slow:
            return []
        return [
            ChangePoint(
                step=self._window[0][0],
                detected_step=step,
                before_s=shortest_s if self._is_slow else self._worst_s,
                after_s=mean_s,
                direction="slow" if self._is_slow else "relief",
                is_slow=self._is_slow,
                confidence=1.0,
            )
        ]
