"""How much a series scatters and how long a deviation lasts, whatever its level does meanwhile.

From differences of neighbours, of which a change or an outlier spoils one or two. With correlation ``m`` of
neighbours, squared differences over one and two steps are as 1 to 1 + m.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

_WINDOW = 400
_LEAST = 5
_EVERY = 16
_FLOOR = 0.003
"""Clocks and rounding alone make for some noise; in logarithms, so 0.3 %."""
_ROUNDING = 1e-9
_MOST_MEMORY = 0.6
_NORMAL = 0.6745
"""Median deviation of a normal distribution, in standard deviations."""
_CUT = 4.0
"""Differences beyond so many of their medians are cut to that."""


class Noise:
    """The noise of the last few hundred values."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_WINDOW)
        self._count = 0
        self.scale = _FLOOR
        """Standard deviation."""
        self.memory = 0.0
        """Correlation of neighbours."""

    @property
    def is_known(self) -> bool:
        """Whether there were enough values to say anything."""
        return len(self._values) >= _LEAST

    def add(self, value: float) -> None:
        """Take in the next value."""
        self._values.append(value)
        self._count += 1
        if self._count <= 2 * _EVERY or self._count % _EVERY == 0:
            self._estimate()

    def _estimate(self) -> None:
        values = np.array(self._values)
        if len(values) < _LEAST:
            return
        one = np.abs(values[1:] - values[:-1])
        median = float(np.median(one))
        if median < _ROUNDING:
            self.scale, self.memory = _FLOOR, 0.0
            return
        two = np.abs(values[2:] - values[:-2])
        ratio = float(
            np.mean(np.minimum(two, _CUT * median) ** 2) / np.mean(np.minimum(one, _CUT * median) ** 2)
        )
        # Of few values the ratio says little.
        trust = len(values) / _WINDOW
        self.memory = min(max((ratio - 1) * trust, 0.0), _MOST_MEMORY)
        self.scale = max(_FLOOR, median / _NORMAL / math.sqrt(2 * (1 - self.memory)))
