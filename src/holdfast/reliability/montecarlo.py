"""Long runs played out, failure by failure: what the formulas of ``ettr`` are held against.

An attempt waits in the queue (exponential), then lives for an exponential time: it restarts, then works and
writes checkpoints, and dies. Only whole cycles of work and write count. Attempts follow each other until the
run has all its cycles. All attempts of all replicas are drawn at once, in blocks.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.reliability.ettr import MIN_PER_DAY, Conditions
from holdfast.reliability.intervals import LEVEL, Floats

RUN_DAYS = 14.0
REPLICAS = 1000
_MOST_DRAWS = 4_000_000
"""In all; a run that would need more of them is made shorter, which hardly changes its mean."""
_MOST_ATTEMPTS = 100_000
"""For one cycle; a job that needs more of them gets nowhere."""
_BLOCK = 1_000_000


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What came of many runs."""

    mean: float
    low: float
    high: float
    """Nine runs of ten end between the two."""
    error: float
    """Standard error of the mean."""
    replicas: int
    run_days: float
    """Of work, in each run."""


def play(
    conditions: Conditions,
    rng: np.random.Generator,
    *,
    run_days: float = RUN_DAYS,
    replicas: int = REPLICAS,
    level: float = LEVEL,
) -> Played:
    """Return the ETTR of runs with so much work, which is rounded to whole cycles."""
    per_cycle = attempts_per_cycle(conditions)
    if per_cycle > _MOST_ATTEMPTS:
        return Played(mean=0.0, low=0.0, high=0.0, error=0.0, replicas=replicas, run_days=run_days)
    affordable = int(_MOST_DRAWS / replicas / per_cycle) if per_cycle > 0 else 10**9
    wanted = round(run_days * MIN_PER_DAY / conditions.checkpoint_min)
    cycles = max(1, min(wanted, affordable))
    work_min = cycles * conditions.checkpoint_min
    return summarise(
        work_min / _wall_min(conditions, cycles, replicas, rng), run_days=work_min / MIN_PER_DAY, level=level
    )


def summarise(ettrs: Floats, *, run_days: float, level: float = LEVEL) -> Played:
    """Return the mean of runs and the interval in which most of them lie."""
    low, high = np.quantile(ettrs, [(1 - level) / 2, (1 + level) / 2])
    error = float(ettrs.std(ddof=1)) / math.sqrt(ettrs.size) if ettrs.size > 1 else 0.0
    return Played(
        mean=float(ettrs.mean()),
        low=float(low),
        high=float(high),
        error=error,
        replicas=ettrs.size,
        run_days=run_days,
    )


def attempts_per_cycle(conditions: Conditions) -> float:
    """Return how many attempts are expected for one cycle of work and write; may be infinite."""
    lam = conditions.failures_per_min
    try:
        cycle_min = conditions.checkpoint_min + conditions.write_min
        return math.expm1(lam * cycle_min) * math.exp(lam * conditions.restart_min)
    except OverflowError:
        return math.inf


def _wall_min(conditions: Conditions, cycles: int, replicas: int, rng: np.random.Generator) -> Floats:
    """Return how long each replica takes for its cycles."""
    wall = np.zeros(replicas)
    left = np.full(replicas, float(cycles))
    running = np.arange(replicas)
    while running.size:
        spent, done, has_ended = _block(conditions, left[running], rng)
        wall[running] += spent
        left[running] -= done
        running = running[~has_ended]
    return wall


def _block(
    conditions: Conditions, left: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Draw attempts of each replica; return the time they took, the cycles they made, and who has ended."""
    cycle_min = conditions.checkpoint_min + conditions.write_min
    expected = left.max() * attempts_per_cycle(conditions)
    width = int(np.clip(1.1 * expected + 8, 8, max(8, _BLOCK // left.size)))
    life = rng.exponential(1 / conditions.failures_per_min, (left.size, width))
    queue = rng.exponential(1.0, life.shape) * conditions.queue_min
    made = np.clip(np.floor((life - conditions.restart_min) / cycle_min), 0.0, left[:, None])
    total = np.cumsum(made, axis=1)
    is_enough = total >= left[:, None]
    has_ended = is_enough[:, -1]
    last = np.where(has_ended, is_enough.argmax(axis=1), width)
    is_lost = np.arange(width) < last[:, None]  # Attempts that died before the run was done.
    spent = ((life + queue) * is_lost).sum(axis=1)
    row = np.flatnonzero(has_ended)
    rest = left[row] - np.where(last[row] > 0, total[row, last[row] - 1], 0.0)
    spent[row] += queue[row, last[row]] + conditions.restart_min + rest * cycle_min
    return spent, total[:, -1], has_ended
