"""The share of its time in which a long run gets on: ETTR, from failures, checkpoints, restarts and queues.

Two formulas for one model. A job of N nodes fails at the rate N r; it writes a checkpoint for ``write_min``
after every ``checkpoint_min`` of work, falls back to the last one when a node fails, waits in a queue, and
takes ``restart_min`` to get going, during which it may fail again. ``closed_form`` is the one of Kokolis et
al. (2024, second version, with queueing added): first order, so too low where checkpoints are not much more
frequent than failures, and too high where writes are long. ``exact`` is the expectation of that very model
for long runs (as in Daly 2006, with a queue):

    checkpoint / [ (exp(lam (checkpoint + write)) - 1) exp(lam restart) (1/lam + queue) ]
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from holdfast.errors import InputError
from holdfast.reliability.intervals import Floats

MIN_PER_DAY = 1440.0
HOURS_PER_DAY = 24.0
GOOD_LOSS = 0.1
GOOD_WRITE = 0.1
"""Of the interval. Up to both, ``closed_form`` is within 1 % of ``exact``."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how much of its time a run is productive."""

    nodes: int
    rate_per_1000_node_days: float
    """Failures."""
    checkpoint_min: float
    """Work between two checkpoints."""
    restart_min: float = 5.0
    """From the start of an attempt to its first step."""
    write_min: float = 0.0
    """For which a checkpoint stops the work."""
    queue_min: float = 0.0
    """Expected before each attempt."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            may_be_0 = name in ("restart_min", "write_min", "queue_min")
            if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_0):
                raise InputError(
                    f"{name} is {value}, expected a number {'from' if may_be_0 else 'above'} 0 on"
                )

    @property
    def failures_per_min(self) -> float:
        """Of the whole job."""
        return self.nodes * self.rate_per_1000_node_days / 1000 / MIN_PER_DAY

    @property
    def loss(self) -> float:
        """Share of the time that failures take, to first order."""
        return self.failures_per_min * (self.restart_min + self.checkpoint_min / 2)


def nodes_of(gpus: ArrayLike, gpus_per_node: int = 8) -> Floats:
    """Return how many nodes a job has: it takes whole ones."""
    return np.ceil(np.asarray(gpus, float) / gpus_per_node)


def mttf_hours(nodes: ArrayLike, rate_per_1000_node_days: ArrayLike) -> Floats:
    """Return the mean time to failure of a job that needs all its nodes; infinite without failures."""
    with np.errstate(divide="ignore"):
        rate = np.asarray(rate_per_1000_node_days, float) / 1000
        return np.asarray(HOURS_PER_DAY / (np.asarray(nodes, float) * rate))


def closed_form(conditions: Conditions, productive_min: float | None = None) -> float:
    """Return the expected ETTR to first order, 0 where a job would only fail; None: of a long run.

    A run that needs only so much productive time also pays for its first start and its first queue.
    """
    if productive_min is None:
        return float(closed_form_of(conditions.failures_per_min, conditions))
    lam, loss = conditions.failures_per_min, conditions.loss
    if loss >= 1:
        return 0.0
    scheduled = productive_min * (1 + conditions.write_min / conditions.checkpoint_min)
    whole = (scheduled + conditions.restart_min) * (1 + lam * conditions.queue_min) / (1 - loss)
    return productive_min / (whole + conditions.queue_min)


def is_closed_form_good(conditions: Conditions) -> bool:
    """Say whether the closed form is within 1 %: failures and writes take little of the time."""
    is_short = conditions.write_min <= GOOD_WRITE * conditions.checkpoint_min
    return is_short and conditions.loss <= GOOD_LOSS


def closed_form_of(
    failures_per_min: ArrayLike, conditions: Conditions, checkpoint_min: ArrayLike | None = None
) -> Floats:
    """Return the same for many rates and intervals; those of ``conditions`` are not looked at."""
    lam, interval = _arrays(failures_per_min, conditions, checkpoint_min)
    left = np.maximum(0.0, 1 - lam * (conditions.restart_min + interval / 2))
    return left / ((1 + conditions.write_min / interval) * (1 + lam * conditions.queue_min))


def exact(conditions: Conditions) -> float:
    """Return the expected ETTR of a long run."""
    return float(exact_of(conditions.failures_per_min, conditions))


def exact_of(
    failures_per_min: ArrayLike, conditions: Conditions, checkpoint_min: ArrayLike | None = None
) -> Floats:
    """Return the same for many rates and intervals; those of ``conditions`` are not looked at."""
    lam, interval = _arrays(failures_per_min, conditions, checkpoint_min)
    cycle = interval + conditions.write_min
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # (exp(lam cycle) - 1) / lam, which is the cycle itself where nothing fails.
        needed = np.where(lam > 0, np.expm1(lam * cycle) / lam, cycle)
        return np.asarray(
            interval / (needed * np.exp(lam * conditions.restart_min) * (1 + lam * conditions.queue_min))
        )


def daly_young_min(conditions: Conditions) -> float | None:
    """Return the checkpoint interval that is best to first order; None: writes are free, so there is none."""
    if conditions.write_min == 0:
        return None
    return math.sqrt(2 * conditions.write_min / conditions.failures_per_min)


def best_interval_min(conditions: Conditions) -> float | None:
    """Return the interval for which ``exact`` is largest; None: writes are free, so there is none."""
    if conditions.write_min == 0:
        return None
    lam = conditions.failures_per_min
    best = (1 + float(lambertw(-math.exp(-lam * conditions.write_min - 1)).real)) / lam
    if math.isfinite(best) and best > 0:
        return best
    return daly_young_min(conditions)  # So rare failures that the two are the same to the last digits.


def _arrays(
    failures_per_min: ArrayLike, conditions: Conditions, checkpoint_min: ArrayLike | None
) -> tuple[Floats, Floats]:
    interval = conditions.checkpoint_min if checkpoint_min is None else checkpoint_min
    lam, spread = np.broadcast_arrays(np.asarray(failures_per_min, float), np.asarray(interval, float))
    return lam, spread
