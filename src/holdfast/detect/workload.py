"""Takes out of a step's time what the step had to do: longer sequences take longer, and nothing is wrong.

A step of ``w`` tokens is expected to take ``a + b w`` seconds; both are fitted as steps come in, with
relative errors.
"""

from __future__ import annotations

import numpy as np

_LEAST = 8
_MEMORY = 0.998
"""Share of its weight that a step keeps with every step that follows."""
_OUTLIER = 0.5
"""Steps that take by so much longer or shorter than expected, relatively, teach nothing."""


class Workload:
    """The fit, and the work of a usual step."""

    def __init__(self) -> None:
        self._moments = np.zeros((2, 2))
        self._targets = np.zeros(2)
        self._count = 0
        self._usual = 0.0
        self._fit = np.zeros(2)

    def normalise(self, duration_s: float, work: float | None, *, learns: bool) -> float:
        """Return how long the step would have taken with the usual work."""
        if work is None or work <= 0:
            return duration_s
        self._usual = self._usual or work
        share = work / self._usual
        expected_s = self._expected_s(share)
        if learns and (expected_s is None or abs(duration_s / expected_s - 1) < _OUTLIER):
            self._learn(duration_s, share)
        expected_s, usual_s = self._expected_s(share), self._expected_s(1.0)
        if expected_s is None or usual_s is None:
            return duration_s / share
        return duration_s * usual_s / expected_s

    def _expected_s(self, share: float) -> float | None:
        if self._count < _LEAST:
            return None
        expected_s = float(self._fit @ (1.0, share))
        return expected_s if expected_s > 0 else None

    def _learn(self, duration_s: float, share: float) -> None:
        row = np.array([1.0, share]) / duration_s
        self._moments = self._moments * _MEMORY + np.outer(row, row)
        self._targets = self._targets * _MEMORY + row
        self._count += 1
        # Where the work never changes both could be anything: a slight pull towards no constant part.
        pull = self._moments[0, 0] * np.diag([1e-4, 0.0])
        self._fit = np.linalg.solve(self._moments + pull, self._targets)
