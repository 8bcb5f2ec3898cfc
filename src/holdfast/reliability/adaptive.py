"""ETTR of a job that trains through failures: a short pause and some speed instead of a restart.

What is assumed:

- Nodes fail independently at one rate, and each comes back after an exponential time of ``repair_hours``.
- The nodes are spread evenly over the ``stages`` of the pipeline; those of one stage can stand in for each
  other. With a share x of all nodes gone, the job makes 1 - ``slope`` x of its work. A slope of 1 loses what
  died and no more. With one of 12 workers dead we measured 0.99 to 1.01 of 1F1B's throughput, a slope of
  about 0.1 or less, since the work fits into bubbles (``benchmarks/executor.py --only periods``); where there
  are no bubbles it is the number of stages.
- Every failure and every return costs all nodes a pause, the step that was interrupted included. We measured
  0.14 s (4 workers) and 0.26 s (12) in the median (``benchmarks/recovery.py --only pause --count 6``: CPU,
  gloo). A node that vanishes with its network is missed only after a time-out, which is to be added.
- When more than ``tolerated`` nodes of one stage are gone, the job restarts from its last checkpoint, with
  all its nodes, as a job does that does not adapt.
- Training takes no one back yet: that a repaired node returns to the running job is assumed, not measured.

Productive time is counted in that of a whole job: an hour at 95 % of the speed is 0.95 h.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from scipy.special import betainc, gammaln

from holdfast.errors import InputError
from holdfast.reliability.ettr import MIN_PER_DAY, Conditions, exact_of
from holdfast.reliability.intervals import Floats

PAUSE_S = 0.26
"""The larger of the two that we measured, see above."""
CAVEAT = (
    "0.26 s was measured on 12 workers, CPU with gloo (benchmarks/recovery.py --only pause --count 6); "
    "that repaired nodes return to the running job is assumed"
)
SLOPE = 1.0
REPAIR_HOURS = 24.0
STAGES = 8
_MOST_EXPONENT = 700.0
"""Of a number that can be written down."""


class Adaptation(msgspec.Struct, frozen=True, kw_only=True):
    """How a job lives on without some of its nodes."""

    pause_s: float = PAUSE_S
    slope: float = SLOPE
    repair_hours: float = REPAIR_HOURS
    stages: int = STAGES
    tolerated: int | None = None
    """Most nodes of a stage that may be gone; None: half of them."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name, least in (
            ("pause_s", 0),
            ("slope", 0),
            ("repair_hours", 0),
            ("stages", 1),
            ("tolerated", 0),
        ):
            value = getattr(self, name)
            if value is not None and not (value >= least and math.isfinite(value)):
                raise InputError(f"{name} is {value}, expected a number from {least} on")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """An adaptation as it is for a job of a certain size."""

    stages: int
    stage_nodes: float
    """On average."""
    tolerated: int


class Through(msgspec.Struct, frozen=True, kw_only=True):
    """What training through failures comes to."""

    ettr: float
    down_share: float
    """Of the nodes, on average, while the job runs."""
    restarts_per_day: float
    pauses_per_day: float


def lay_out(conditions: Conditions, adaptation: Adaptation) -> Layout:
    """Return how the nodes are spread: a small job has no more stages than nodes."""
    stages = min(adaptation.stages, conditions.nodes)
    fewest = conditions.nodes // stages
    wanted = fewest // 2 if adaptation.tolerated is None else adaptation.tolerated
    return Layout(
        stages=stages, stage_nodes=conditions.nodes / stages, tolerated=max(0, min(wanted, fewest - 1))
    )


def train_through(conditions: Conditions, adaptation: Adaptation) -> Through:
    """Return the expected ETTR of a long run.

    Restarts as in ``ettr.exact``, at the rate at which a stage loses too many nodes; times the speed that is
    left; times what pauses leave.
    """
    lay = lay_out(conditions, adaptation)
    per_node = conditions.failures_per_min / conditions.nodes
    restarts, down = _between_restarts(lay, per_node, 60 * adaptation.repair_hours)
    # Every node that is missed comes back; after a restart there is nobody to come back to.
    pauses = 2 * max(0.0, conditions.failures_per_min * (1 - down) - restarts)
    speed = max(0.0, 1 - adaptation.slope * down)
    return Through(
        ettr=_restarting(conditions, restarts) * speed / (1 + pauses * adaptation.pause_s / 60),
        down_share=down,
        restarts_per_day=restarts * MIN_PER_DAY,
        pauses_per_day=pauses * MIN_PER_DAY,
    )


def _restarting(conditions: Conditions, restarts_per_min: float) -> float:
    """Return the ETTR of a job that restarts so often, but fails on every death while it is starting."""
    lam = conditions.failures_per_min
    at_once = msgspec.structs.replace(conditions, restart_min=0, queue_min=0)
    running = float(exact_of(restarts_per_min, at_once))
    start = lam * conditions.restart_min
    if restarts_per_min == 0 or start > _MOST_EXPONENT:
        return running if restarts_per_min == 0 else 0.0
    # From the failure to the first step: queue and start, again and again until no node fails meanwhile.
    gap_min = math.exp(start) * conditions.queue_min + math.expm1(start) / lam
    return running / (1 + restarts_per_min * gap_min)


def _between_restarts(lay: Layout, per_node: float, repair_min: float) -> tuple[float, float]:
    """Return restarts per minute of running, and the share of nodes that is gone meanwhile.

    After a restart nobody is missing. If nobody stopped the job, the nodes missing of a stage would be
    binomial at any time, and more and more of them until repairs keep up; a stage that misses as many as it
    may is lost with its next node. That hazard decides how long the job lasts.
    """
    failures = lay.stages * lay.stage_nodes * per_node
    if repair_min == 0 or lay.tolerated == 0:
        return (failures if lay.tolerated == 0 else 0.0), 0.0
    settle_min = repair_min / (1 + per_node * repair_min)
    times = np.geomspace(min(settle_min, 1 / failures) * 1e-6, 30 * settle_min, 3000)
    gone = per_node * settle_min * -np.expm1(-times / settle_min)
    edge, missing = _at_the_edge(lay, gone)
    hazard = lay.stages * (lay.stage_nodes - lay.tolerated) * per_node * edge
    lasts = np.exp(-cumulative(hazard, times))
    # Beyond the grid nothing changes any more.
    with np.errstate(over="ignore"):
        tail = float(lasts[-1] / hazard[-1]) if hazard[-1] > 0 else math.inf
    if not math.isfinite(tail):
        return 0.0, float(missing[-1])
    mean_min = float(cumulative(lasts, times)[-1] + times[0] + tail)
    return 1 / mean_min, float(cumulative(lasts * missing, times)[-1] + tail * missing[-1]) / mean_min


def _at_the_edge(lay: Layout, gone: Floats) -> tuple[Floats, Floats]:
    """Return how likely a stage that lives misses as many nodes as it may, and the share that it misses."""
    most, size = lay.tolerated, lay.stage_nodes
    alive = betainc(size - most, most + 1, 1 - gone)
    log_full = _log_binomial(size, most) + most * np.log(gone) + (size - most) * np.log1p(-gone)
    with np.errstate(divide="ignore", invalid="ignore"):
        edge = np.exp(log_full) / alive
        missing = gone * betainc(size - most, most, 1 - gone) / alive
    # A stage that should long be lost, to the last digit, lives at the edge.
    return np.where(alive > 0, np.minimum(edge, 1.0), 1.0), np.where(alive > 0, missing, most / size)


def cumulative(values: Floats, at: Floats) -> Floats:
    """Return the integral up to each place, by the trapezoidal rule."""
    pieces = np.diff(at) * (values[1:] + values[:-1]) / 2
    return np.concatenate([[0.0], np.cumsum(pieces)])


def _log_binomial(size: float, count: int) -> float:
    return float(gammaln(size + 1) - gammaln(count + 1) - gammaln(size - count + 1))
