"""What a simulated cluster is like, who comes to it, and what breaks: drawn beforehand from a generator.

The defaults are those of Meta's RSC-1 as published: sizes by count and by GPU time, states of jobs, failure
rate, 83 % utilisation. A smaller cluster keeps the mix, without the jobs that do not fit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from holdfast.reliability import taxonomy

DAY_S = 86_400.0
HOUR_S = 3600.0


@dataclass(frozen=True)
class Size:
    """Jobs of so many GPUs: their share of all jobs, and how long one runs on average."""

    gpus: int
    share: float
    mean_h: float


def _sizes() -> tuple[Size, ...]:
    """Return sizes by count, with run times that give each its published share of the GPU time."""
    by_count = (0.42, 0.06, 0.07, 0.36, 0.030, 0.022, 0.015, 0.011, 0.007, 0.0035, 0.0015, 0.0007, 0.0003)
    by_time = (0.005, 0.002, 0.005, 0.078, 0.03, 0.05, 0.07, 0.10, 0.14, 0.15, 0.14, 0.11, 0.12)
    hours = 16_384 * 24 * 0.83 / 7200  # GPU hours of the mean job: GPUs, utilisation and jobs per day.
    return tuple(
        Size(2**power, count, time * hours / (count * 2**power))
        for power, (count, time) in enumerate(zip(by_count, by_time, strict=True))
    )


@dataclass(frozen=True)
class Symptom:
    """What a kind of failure shows: a health check that fails, and XIDs with how often they come along."""

    row: str
    share: float
    check: str
    xids: tuple[tuple[int, float], ...] = ()


SYMPTOMS = (
    Symptom(taxonomy.INFINIBAND, 0.26, "check ib link"),
    Symptom(taxonomy.MOUNTS, 0.20, "check mountpoint"),
    Symptom(taxonomy.GPU_MEMORY, 0.20, "check nvidia smi row_remap", ((95, 0.5), (64, 0.5))),
    Symptom(taxonomy.PCIE, 0.14, "check pci", ((79, 0.43),)),
    Symptom(taxonomy.GPU_GONE, 0.07, "check nvidia smi gpu_num", ((79, 0.9),)),
    Symptom(taxonomy.NVLINK, 0.06, "check dcgmi nvlink error", ((74, 0.8),)),
    Symptom(taxonomy.SERVICES, 0.07, "check service status"),
)


@dataclass(frozen=True)
class ClusterPlan:
    """A cluster and its habits."""

    nodes: int = 2048
    gpus_per_node: int = 8
    days: float = 28.0
    utilisation: float = 0.83
    """Of all GPUs, by the jobs that come; failures and redone work come on top."""
    sizes: tuple[Size, ...] = field(default_factory=_sizes)
    largest_share: float = 0.5
    """Jobs that take more of the cluster do not come."""
    spread: float = 1.2
    """Of the logarithm of run times."""
    outcomes: tuple[tuple[str, float], ...] = (
        ("COMPLETED", 0.60),
        ("FAILED", 0.24),
        ("CANCELLED", 0.032),
        ("REQUEUED", 0.02),
        ("TIMEOUT", 0.006),
        ("OUT_OF_MEMORY", 0.001),
    )
    """How jobs end if nothing happens to them; PREEMPTED and NODE_FAIL come about by themselves."""
    rate_per_node_day: float = 6.5e-3
    repair_median_min: float = 59.0
    repair_mean_min: float = 352.0
    silent_share: float = 0.35
    """Of failures, at which the node stops to answer: NODE_FAIL."""
    noticed_share: float = 0.9
    """Of failures, which a health check sees."""
    notice_mean_s: float = 90.0
    """From the failure until it does."""
    ticket_share: float = 0.3
    exclude_share: float = 0.5
    """Of users whose job was failed by a node that nobody noticed, who then do not want it."""
    false_alarm_share: float = 0.005
    """Of completed attempts, during which a check fails for nothing."""
    preemptible_after_h: float = 2.0
    longest_days: float = 7.0
    checkpoint_h: float = 1.0
    """What is younger than the last checkpoint is lost with an attempt."""
    patience_h: float = 6.0
    """After which a waiting job that needs whole nodes is not overtaken any more by others that do."""
    requeue_delay_s: float = 120.0
    logs_preemptor: bool = True

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1 or self.days <= 0:
            raise ValueError(f"a cluster of {self.nodes} nodes x {self.gpus_per_node} GPUs, {self.days} days")

    @property
    def until_s(self) -> float:
        return self.days * DAY_S


@dataclass(frozen=True)
class Request:
    """A job that somebody submits."""

    submit_s: float
    gpus: int
    duration_s: float
    priority: int = 2
    outcome: str = "COMPLETED"
    name: str = "train"
    user: str = "u0"
    crashes: int = 0
    """Times that a node fails under it, whatever else happens: a crash loop."""
    crash_after_s: float = 1800.0


@dataclass(frozen=True)
class NodeFailure:
    """A node breaks at a moment."""

    node: int
    at_s: float
    repair_s: float
    symptom: Symptom
    is_silent: bool
    is_noticed: bool


def draw_requests(plan: ClusterPlan, rng: random.Random) -> list[Request]:
    """Draw the jobs of a cluster, by the time of their arrival."""
    most = max(1.0, plan.largest_share * plan.nodes * plan.gpus_per_node)
    sizes = [size for size in plan.sizes if size.gpus <= most]
    total = sum(size.share for size in sizes)
    mean_gpu_h = sum(size.share * size.gpus * size.mean_h for size in sizes) / total
    per_s = plan.utilisation * plan.nodes * plan.gpus_per_node / (mean_gpu_h * HOUR_S)
    weights = [size.share for size in sizes]
    requests: list[Request] = []
    at_s = rng.expovariate(per_s)
    while at_s < plan.until_s:
        (size,) = rng.choices(sizes, weights)
        requests.append(_draw_request(plan, size, at_s, len(requests), rng))
        at_s += rng.expovariate(per_s)
    return requests


def _draw_request(plan: ClusterPlan, size: Size, at_s: float, number: int, rng: random.Random) -> Request:
    (outcome,) = rng.choices(*zip(*plan.outcomes, strict=True))
    # Who needs much has been promised much.
    chances = (0.1, 0.4, 0.5) if size.gpus >= 256 else (0.4, 0.5, 0.1)
    mu = math.log(size.mean_h) - plan.spread**2 / 2
    return Request(
        submit_s=at_s,
        gpus=size.gpus,
        duration_s=max(30.0, rng.lognormvariate(mu, plan.spread) * HOUR_S),
        priority=rng.choices((1, 2, 3), chances)[0],
        outcome=outcome,
        name=f"job{number}",
        user=f"u{rng.randrange(50)}",
    )


def draw_failures(
    plan: ClusterPlan, rng: random.Random, rates_per_day: Sequence[float] | None = None
) -> list[NodeFailure]:
    """Draw the failures of nodes, by time; each node may have its own rate."""
    rates = [plan.rate_per_node_day] * plan.nodes if rates_per_day is None else list(rates_per_day)
    if len(rates) != plan.nodes:
        raise ValueError(f"{len(rates)} rates, expected one for each of {plan.nodes} nodes")
    failures = []
    for node, rate in enumerate(rates):
        at_s = rng.expovariate(rate / DAY_S) if rate > 0 else math.inf
        while at_s < plan.until_s:
            failures.append(draw_failure(plan, rng, node, at_s))
            at_s += rng.expovariate(rate / DAY_S)
    return sorted(failures, key=lambda failure: (failure.at_s, failure.node))


def draw_failure(
    plan: ClusterPlan, rng: random.Random, node: int, at_s: float, repair_s: float | None = None
) -> NodeFailure:
    """Draw what a failure looks like, and how long it takes to mend it unless that is known."""
    mu = math.log(plan.repair_median_min)
    sigma = math.sqrt(2 * math.log(plan.repair_mean_min / plan.repair_median_min))
    drawn_s = rng.lognormvariate(mu, sigma) * 60
    (symptom,) = rng.choices(SYMPTOMS, [each.share for each in SYMPTOMS])
    return NodeFailure(
        node=node,
        at_s=at_s,
        repair_s=max(60.0, drawn_s if repair_s is None else repair_s),
        symptom=symptom,
        is_silent=rng.random() < plan.silent_share,
        is_noticed=rng.random() < plan.noticed_share,
    )


def failures_of(outages: pl.DataFrame, plan: ClusterPlan, rng: random.Random) -> list[NodeFailure]:
    """Take times, nodes and repairs from a record of one system, from its first failure on."""
    timed = outages.filter(pl.col("at").is_not_null() & pl.col("node").is_not_null()).sort("at", "node")
    names = sorted(timed["node"].unique().to_list())
    if len(names) > plan.nodes:
        raise ValueError(f"failures of {len(names)} nodes, expected at most the {plan.nodes} of the cluster")
    places = {name: place for place, name in enumerate(names)}
    since_s = (pl.col("at") - pl.col("at").min()).dt.total_seconds()
    rows = timed.select("node", since_s, "down_min").iter_rows()
    return [
        draw_failure(plan, rng, places[node], float(at_s), None if down is None else down * 60)
        for node, at_s, down in rows
        if at_s < plan.until_s
    ]
