"""An axis of a chart: values to places along it, and the round values worth a tick."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Axis:
    """Maps values from ``low`` to ``high`` to places between two ends."""

    def __init__(self, low: float, high: float, ends: tuple[float, float], *, is_log: bool = False) -> None:
        self.low = low
        self.high = high
        self._ends = ends
        self._is_log = is_log

    @classmethod
    def over(cls, values: Sequence[float], ends: tuple[float, float], *, is_log: bool = False) -> Axis:
        """Return the axis that holds all values, and 0 unless it is logarithmic."""
        if not all(map(math.isfinite, values)):
            raise ValueError("an axis of values that are not all finite")
        low, high = min(values), max(values)
        if not is_log:
            low, high = min(low, 0.0), max(high, 0.0)
            return cls(low, high if high - low > 1e-200 else 1.0, ends)
        if low <= 0:
            raise ValueError(f"a logarithmic axis with the value {low:g}")
        return cls(low, high if high > low else 10 * low, ends, is_log=True)

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        if self._is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self._ends[0] + share * (self._ends[1] - self._ends[0])

    def ticks(self) -> list[float]:
        """Return round values: about five to eight, fewer where there is little room."""
        if self._is_log:
            return _log_ticks(self.low, self.high)
        parts = min(4.0, max(1.0, abs(self._ends[1] - self._ends[0]) / 50))
        return _linear_ticks(self.low, self.high, parts)


def _linear_ticks(low: float, high: float, parts: float) -> list[float]:
    most = (high - low) / parts
    scale = 10.0 ** math.floor(math.log10(most))
    step = max(digit * scale for digit in (0.5, 1, 2, 2.5, 5, 10) if digit * scale <= most * 1.001)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) <= 4 else (1,)
    values = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]
