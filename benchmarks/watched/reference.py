"""How fast the machine itself is meanwhile: the same little work, again and again, and what was stolen.

A virtual machine shares its cores with strangers. A job that gets slow because its host does is no false
alarm; this tells the two apart, by nothing that Holdfast sees.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

SAMPLED_S = 0.25
_LOOPS = 6000
_QUARTER = 4
DISTURBED = 1.05
STOLEN = 0.03


class Reference:
    """Samples for as long as a block lasts."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        """When, and how long the work took."""
        self._stolen: list[tuple[float, float]] = []
        """When, and the seconds that others had taken of all cores."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reference:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def slowdown(self, first_s: float, last_s: float) -> float:
        """Return how much longer the work took between two moments than over all."""
        inside = [took for at, took in self._samples if first_s <= at <= last_s]
        return _low(inside) / _low([took for _, took in self._samples]) if inside else 1.0

    def stolen(self, first_s: float, last_s: float) -> float:
        """Return which share of the cores' time others had between two moments."""
        inside = [(at, stolen) for at, stolen in self._stolen if first_s <= at <= last_s]
        if len(inside) < 2:
            return 0.0
        (begin_s, before), (end_s, after) = inside[0], inside[-1]
        return (after - before) / (end_s - begin_s) / (os.cpu_count() or 1)

    def is_disturbed(self, first_s: float, last_s: float) -> bool:
        """Say whether the machine itself was slower, or was taken away, between two moments."""
        return self.slowdown(first_s, last_s) >= DISTURBED or self.stolen(first_s, last_s) >= STOLEN

    def _run(self) -> None:
        while not self._stop.wait(SAMPLED_S):
            began_s = time.perf_counter()
            for _ in range(_LOOPS):
                pass
            self._samples.append((time.time(), time.perf_counter() - began_s))
            self._stolen.append((time.time(), _stolen_s()))


def _low(times: list[float]) -> float:
    """Return the lower quartile: the job itself may have had the core."""
    return statistics.quantiles(times, n=_QUARTER)[0] if len(times) > 1 else times[0]


def _stolen_s() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")
