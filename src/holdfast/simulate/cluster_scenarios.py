"""Histories of clusters that have a name."""

from __future__ import annotations

import random

from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import DAY_S, HOUR_S, ClusterPlan, Request
from holdfast.simulate.cluster_record import ClusterRecord

CRASH_LOOP = "crash-loop"
"""The name of the job that crashes."""


def crash_loop(rng: random.Random, *, crashes: int = 35) -> ClusterRecord:
    """Let a job of 1,024 GPUs crash and be requeued 35 times, on a cluster that is full of small jobs.

    The paper tells of 35 requeues that caused 548 preemptions over 7k GPUs: 16 jobs of 13 GPUs each time. So
    there is a little more work of low priority than the nodes that the large job leaves: at every crash some
    of it moves in, and after two hours it is preempted again.
    """
    plan = ClusterPlan(nodes=160, days=10.0)
    sizes = [8] * 9 + [16] * 23
    small = [
        Request(submit_s=60.0 * number, gpus=gpus, duration_s=20 * DAY_S, priority=1, name=f"small{number}")
        for number, gpus in enumerate(sizes)
    ]
    large = Request(
        submit_s=3 * HOUR_S,
        gpus=1024,
        duration_s=3 * DAY_S,
        priority=3,
        name=CRASH_LOOP,
        crashes=crashes,
        crash_after_s=HOUR_S,
    )
    return simulate_cluster(plan, rng, requests=[*small, large], failures=[])
