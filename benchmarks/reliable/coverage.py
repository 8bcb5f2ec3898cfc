"""How often 90 % intervals hold what they should: made-up fleets whose truth is known, one for each seed.

Each function takes seeds and returns a ``Coverage``. Rates go through the same tables and functions as the
records of a real cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import numpy as np
import polars as pl

from holdfast.reliability.attemptrates import rates_of_attempts
from holdfast.reliability.ettr import Conditions, exact
from holdfast.reliability.goodput import second_share
from holdfast.reliability.intervals import dispersion
from holdfast.reliability.montecarlo import play
from holdfast.reliability.rates import Rate, make_rate
from holdfast.reliability.tables import ATTEMPTS

LONG_RUN = Conditions(nodes=512, rate_per_1000_node_days=6.5, checkpoint_min=60, write_min=2, queue_min=5)
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Coverage:
    """How many intervals held the truth."""

    name: str
    seeds: int
    held: int
    mean_failures: float

    @property
    def share(self) -> float:
        """Of all seeds."""
        return self.held / self.seeds


def draw_attempts(
    rng: np.random.Generator, *, attempts: int, rate_per_1000_node_days: float, nodes: int = 64
) -> pl.DataFrame:
    """Return attempts of 64-node jobs that end as planned, after up to two days, or because a node failed."""
    planned_h = rng.uniform(1.0, 48.0, attempts)
    life_h = rng.exponential(24_000 / (nodes * rate_per_1000_node_days), attempts)
    start_s = rng.uniform(0.0, 90 * 86_400.0, attempts)
    length_s = 3600 * np.minimum(planned_h, life_h)
    first_us = int(_FIRST.timestamp() * 1e6)
    known = {
        "job": np.arange(attempts).astype(str),
        "state": np.where(life_h < planned_h, "NODE_FAIL", "COMPLETED"),
        "start": first_us + (1e6 * start_s).astype(np.int64),
        "end": first_us + (1e6 * (start_s + length_s)).astype(np.int64),
        "nodes": np.full(attempts, nodes),
        "gpus": np.full(attempts, 8 * nodes),
    }
    return pl.DataFrame(
        [
            pl.Series(name, known[name]).cast(dtype)
            if name in known
            else pl.Series(name, [None] * attempts, dtype)
            for name, dtype in ATTEMPTS.items()
        ]
    )


def cover_rate(seeds: Iterable[int], *, attempts: int = 200, rate: float = 6.5) -> Coverage:
    """Return how often the interval of the fleet's rate holds the rate that failures were drawn with."""
    rates = [_measured(seed, attempts, rate) for seed in seeds]
    held = [each.low <= rate <= each.high for each in rates]
    return Coverage("rate", len(held), sum(held), float(np.mean([each.failures for each in rates])))


def cover_ettr(seeds: Iterable[int], *, attempts: int = 200, conditions: Conditions = LONG_RUN) -> Coverage:
    """Return how often the ETTR that is expected from a measured rate and its interval holds the true one."""
    truth = exact(conditions)
    rates = [_measured(seed, attempts, conditions.rate_per_1000_node_days) for seed in seeds]
    held = [_ettr_at(conditions, each.high) <= truth <= _ettr_at(conditions, each.low) for each in rates]
    return Coverage("expected ETTR", len(held), sum(held), float(np.mean([each.failures for each in rates])))


def cover_run(seeds: Iterable[int], *, conditions: Conditions = LONG_RUN) -> Coverage:
    """Return how often the ETTR of one more run lies where nine of ten played ones do."""
    held = 0
    count = 0
    for seed in seeds:
        band = play(conditions, np.random.default_rng([seed, 1]))
        one = play(conditions, np.random.default_rng([seed, 2]), replicas=1).mean
        held += band.low <= one <= band.high
        count += 1
    per_run = conditions.failures_per_min * 1440 * 14 / exact(conditions)
    return Coverage("ETTR of one run", count, held, per_run)


def cover_scattered(
    seeds: Iterable[int], *, nodes: int = 200, mean: float = 4.0, ratio: float = 6.0
) -> tuple[Coverage, Coverage]:
    """Return the same of Poisson and quasi-Poisson intervals for nodes that are not alike.

    Each node's own rate is gamma distributed, so that variance over mean is ``ratio``, as in real records.
    """
    scale = (ratio - 1) / mean
    rates = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        counts = rng.poisson(mean * rng.gamma(1 / scale, scale, nodes))
        rates.append(make_rate(int(counts.sum()), 1000.0 * nodes, dispersion(counts)))
    failures = float(np.mean([each.failures for each in rates]))
    narrow = sum(each.low <= mean <= each.high for each in rates)
    wide = sum(each.wide_low <= mean <= each.wide_high for each in rates)
    return (
        Coverage("rate of unlike nodes, Poisson", len(rates), narrow, failures),
        Coverage("rate of unlike nodes, quasi-Poisson", len(rates), wide, failures),
    )


def cover_second(seeds: Iterable[int], *, failures: int) -> Coverage:
    """Return how often the interval of second-order loss holds the share that cascades are drawn with.

    One failure in five makes others lose their nodes, few or many: the truth is known from the draw itself.
    """
    held = 0
    count = 0
    for seed in seeds:
        share = second_share(_losses(np.random.default_rng([seed, failures]), failures))
        held += share is not None and share.low <= TRUE_SECOND <= share.high
        count += 1
    return Coverage("second-order share", count, held, failures)


_FIRST_H = 2.0 ** np.arange(2, 9)
_CASCADES, _PER_CASCADE, _VICTIM_H = 0.2, 5.0, 8.0
TRUE_SECOND = (
    _CASCADES * _PER_CASCADE * _VICTIM_H / (_CASCADES * _PER_CASCADE * _VICTIM_H + float(_FIRST_H.mean()))
)
"""Share of the loss that is of the second order, in the long run."""


def _losses(rng: np.random.Generator, failures: int) -> pl.DataFrame:
    victims = rng.geometric(1 / _PER_CASCADE, failures) * (rng.random(failures) < _CASCADES)
    lost_h = {1: rng.choice(_FIRST_H, failures), 2: victims * _VICTIM_H}
    return pl.concat(
        pl.DataFrame({"by_job": np.arange(failures), "lost_gpu_h": hours}).with_columns(
            by_attempt=pl.lit(1), order=pl.lit(order)
        )
        for order, hours in lost_h.items()
    )


def _measured(seed: int, attempts: int, rate: float) -> Rate:
    rng = np.random.default_rng(seed)
    return rates_of_attempts(draw_attempts(rng, attempts=attempts, rate_per_1000_node_days=rate)).rate


def _ettr_at(conditions: Conditions, rate: float) -> float:
    if rate <= 0:  # Not one failure was seen: there may be none.
        return conditions.checkpoint_min / (conditions.checkpoint_min + conditions.write_min)
    return exact(msgspec.structs.replace(conditions, rate_per_1000_node_days=rate))
