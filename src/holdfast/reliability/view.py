"""The forecast around one job, for pictures and tables: other sizes, other rates, other intervals."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from holdfast.reliability.adaptive import CAVEAT, Adaptation, train_through
from holdfast.reliability.ettr import Conditions, nodes_of
from holdfast.reliability.forecast import Band, Curve, contour, curve
from holdfast.reliability.intervals import Floats
from holdfast.reliability.rates import Rate

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95)
TABLE_GPUS = (1024, 4096, 16_384, 65_536, 131_072)
_SIZES = 80
_RATES = 240
_SPREAD = 10.0
"""So many times less and more than the job's own rate."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a job."""

    conditions: Conditions
    gpus: int
    curve: Curve
    through: Floats
    """ETTR at each size of the curve if the job trains through failures."""
    bands: tuple[Band, ...]
    """The lowest level first; each lies within the one before."""


def look_around(conditions: Conditions, gpus: int, gpus_per_node: int, adaptation: Adaptation) -> View:
    """Return curves from one node to ten times the job, and contours around its rate."""
    sizes = np.geomspace(gpus_per_node, max(1000 * gpus_per_node, 10 * gpus), _SIZES).round()
    rate = conditions.rate_per_1000_node_days
    rates = np.geomspace(rate / _SPREAD, rate * _SPREAD, _RATES)
    return View(
        conditions=conditions,
        gpus=gpus,
        curve=curve(conditions, sizes, gpus_per_node),
        through=through_of(conditions, sizes, gpus_per_node, adaptation),
        bands=tuple(contour(conditions, rates, level) for level in LEVELS),
    )


def through_of(conditions: Conditions, gpus: Floats, gpus_per_node: int, adaptation: Adaptation) -> Floats:
    """Return ETTR of training through failures for many sizes."""
    jobs = (msgspec.structs.replace(conditions, nodes=int(nodes)) for nodes in nodes_of(gpus, gpus_per_node))
    return np.array([train_through(job, adaptation).ettr for job in jobs])


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster's own failure rate means for jobs that it may never have run."""

    checkpoint_min: float
    restart_min: float
    rows: list[dict[str, Any]]
    caveat: str = CAVEAT


def expect(rate: Rate, gpus_per_node: int) -> Expected | None:
    """Return a row for each size, at hourly checkpoints; None: without failures there is no rate to go by."""
    if not rate.per_1000_node_days:
        return None
    sizes = np.array(TABLE_GPUS, float)
    middle, low, high = (
        Conditions(nodes=1, rate_per_1000_node_days=max(value, 1e-9), checkpoint_min=60)
        for value in (rate.per_1000_node_days, rate.low, rate.high)
    )
    found = curve(middle, sizes, gpus_per_node)
    worst, best = (curve(end, sizes, gpus_per_node).exact for end in (high, low))
    columns = {
        "gpus": list(TABLE_GPUS),
        "mttf_hours": found.mttf_hours.tolist(),
        "ettr": found.exact.tolist(),
        "ettr_low": worst.tolist(),
        "ettr_high": best.tolist(),
        "through": through_of(middle, sizes, gpus_per_node, Adaptation()).tolist(),
    }
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return Expected(checkpoint_min=middle.checkpoint_min, restart_min=middle.restart_min, rows=rows)
