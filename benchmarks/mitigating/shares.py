"""S2, the split of micro-batches over replicas: is it the best there is, and how long does it take?"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from typing import Any

import common
from holdfast.plan.share import split

_PUBLISHED_S = 35.93
"""FALCON's solver for 512 replicas."""


def measure(options: argparse.Namespace) -> common.Part:
    """Compare with all splits on small cases, and time large ones."""
    worse, cases = _compare(options.seed, 300)
    rows: list[dict[str, Any]] = []
    for replicas in (16, 64, 128, 256, 512):
        rng = random.Random(options.seed)
        speeds = [rng.uniform(0.3, 1.0) if rng.random() < 0.1 else 1.0 for _ in range(replicas)]
        began_s = time.perf_counter()
        split(32 * replicas, speeds, overhead=3, at_least=1)
        rows.append({"replicas": replicas, "milliseconds": 1000 * (time.perf_counter() - began_s)})
    notes = [
        f"{cases} small cases, with and without pipeline fill: worse than the best of all splits in {worse}",
        f"FALCON's solver for 512 replicas: {_PUBLISHED_S} s (published); variance, its objective, was up to "
        f"{_variance_loss():.3f} times worse on t = 1, 1, 1, 2.99 with 16 micro-batches",
    ]
    return common.Part(rows, notes, is_good=worse == 0 and rows[-1]["milliseconds"] < 10)


def _compare(seed: int, cases: int) -> tuple[int, int]:
    worse = 0
    for number in range(seed, seed + cases):
        rng = random.Random(number)
        speeds = [rng.uniform(0.2, 1.0) for _ in range(rng.randint(2, 4))]
        total, overhead = rng.randint(len(speeds), 16), rng.choice((0.0, 1.0, 3.0))
        found = split(total, speeds, overhead=overhead, at_least=1)
        best = min(
            _time(counts, speeds, overhead)
            for counts in itertools.product(range(1, total + 1), repeat=len(speeds))
            if sum(counts) == total
        )
        worse += _time(found, speeds, overhead) > best * (1 + 1e-9)
    return worse, cases


def _time(counts: tuple[int, ...] | list[int], speeds: list[float], overhead: float) -> float:
    return max((count + overhead) / speed for count, speed in zip(counts, speeds, strict=True))


def _variance_loss() -> float:
    times, total = [1.0, 1.0, 1.0, 2.99], 16
    splits = [each for each in itertools.product(range(1, total), repeat=4) if sum(each) == total]

    def spread(counts: tuple[int, ...]) -> float:
        each = [count * t for count, t in zip(counts, times, strict=True)]
        mean = sum(each) / len(each)
        return sum((value - mean) ** 2 for value in each)

    def longest(counts: tuple[int, ...]) -> float:
        return max(count * t for count, t in zip(counts, times, strict=True))

    return longest(min(splits, key=spread)) / min(map(longest, splits))
