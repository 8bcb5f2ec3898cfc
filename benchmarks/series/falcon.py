"""The 499 jobs of FALCON's study, drawn anew: its mix, durations and slowdowns, read off its figures.

392 jobs on one node, of which 4 met CPU contention and 2 a degraded GPU; 107 on four nodes, of which 42 met
network congestion, in 67 events altogether, and 1 CPU contention. Of the published slowdowns those from 10 %
on belong to these jobs; the smaller ones make for faults that count neither way, in jobs that count as
healthy. A job's slowdown and its durations are drawn independently.
"""

from __future__ import annotations

import numpy as np

from series.machine import Fault, Machine, constant, four_nodes, measure, one_node, slowdown_of, warm_up
from series.truth import Job

STEPS = 10_000

COMPUTE_MINUTES = (6.4, 9.0, 9.1, 9.6, 11.9, 12.0)
COMPUTE_PERCENT = (10.6, 11.6, 11.8, 18.1, 19.0, 21.0, 24.0)
"""By how much slower: jobs on one node, and the levels of the two case studies."""
COMPUTE_MILD = (0.3, 6.9, 7.8)
# fmt: off
NETWORK_MINUTES = (
    0.20, 0.25, 0.26, 0.27, 0.28, 0.28, 0.34, 0.35, 0.38, 0.42, 0.60, 0.70, 0.73, 1.20, 1.93, 2.40, 2.57,
    3.01, 3.59, 4.93, 5.86, 7.35, 7.94, 8.63, 9.38, 9.98, 11.1, 11.8, 12.1, 16.4, 18.4, 19.7, 20.6, 21.1,
    22.9, 23.2, 25.6, 26.3, 26.6, 26.8, 27.6, 31.8, 32.6, 34.0, 37.9, 38.0, 38.4, 40.3, 41.0, 43.5, 46.3,
    46.8, 49.6, 56.1, 77.2, 78.7, 89.6, 100, 106, 139, 144, 147, 153, 155, 176, 202, 228,
)
NETWORK_PERCENT = (
    0.2, 0.4, 0.45, 0.5, 0.5, 0.55, 0.6, 0.6, 0.7, 0.9, 0.9, 1.0, 1.2, 1.4, 2.5, 2.7, 3.0, 3.35, 3.4, 4.3,
    5.5, 5.9, 6.2, 6.6, 6.7, 6.9, 7.2, 8.0, 8.5, 9.05, 10.3, 10.3, 10.6, 10.7, 10.8, 12.1, 12.6, 13.15,
    13.2, 14.2, 14.3, 14.3, 17.0, 17.1, 21.4, 21.9, 23.3, 24.95, 29.1, 32.1, 32.5, 33.2, 33.55, 33.8,
    34.0, 35.2, 39.4, 39.8, 39.8, 39.9, 40.9, 41.8, 43.5, 47.1, 48.2, 48.9,
)
# fmt: on
NETWORK_CASES = (34.0, 57.0, 77.0)
_COMPUTE = ("cpu", "cpu", "cpu", "cpu", "gpu", "gpu")
_NETWORK_JOBS = 43
_CPU_JOB = 21
"""The one of them that met CPU contention."""


def draw_jobs(seed: int) -> list[Job]:
    """Return the 499 jobs of a seed."""
    rng = np.random.default_rng([seed, 499])
    one = [_one_node_job(number, rng) for number in range(392)]
    return one + _four_node_jobs(rng)


def _one_node_job(number: int, rng: np.random.Generator) -> Job:
    machine = one_node(rng)
    faults = []
    if number < len(_COMPUTE) + len(COMPUTE_MILD):
        is_counted = number < len(_COMPUTE)
        percent = rng.choice(COMPUTE_PERCENT) if is_counted else COMPUTE_MILD[number - len(_COMPUTE)]
        steps = int(rng.choice(COMPUTE_MINUTES) * 60 / machine.step_s)
        resource = _COMPUTE[number] if is_counted else "cpu"
        faults = _place([steps], 1 + float(percent) / 100, resource, rng)
    return _make(f"compute {number}", machine, faults, rng)


def _four_node_jobs(rng: np.random.Generator) -> list[Job]:
    minutes = _share_out(rng)
    counted = [value for value in NETWORK_PERCENT if value >= 10] + list(NETWORK_CASES)
    mild = [value for value in NETWORK_PERCENT if value < 10]
    jobs = []
    for number in range(107):
        machine = four_nodes(rng)
        faults = []
        if number < _NETWORK_JOBS:
            steps = [max(1, int(value * 60 / machine.step_s)) for value in minutes[number]]
            resource = "cpu" if number == _CPU_JOB else "rdma"
            faults = _place(steps, 1 + float(rng.choice(counted)) / 100, resource, rng)
        elif number < _NETWORK_JOBS + len(mild):
            steps = [int(rng.choice(NETWORK_MINUTES) * 60 / machine.step_s)]
            faults = _place(steps, 1 + mild[number - _NETWORK_JOBS] / 100, "rdma", rng)
        jobs.append(_make(f"network {number}", machine, faults, rng))
    return jobs


def _share_out(rng: np.random.Generator) -> list[list[float]]:
    """Give every job that meets congestion at least one of the events."""
    owners = np.concatenate((np.arange(_NETWORK_JOBS), rng.integers(0, _NETWORK_JOBS, 67 - _NETWORK_JOBS)))
    minutes: list[list[float]] = [[] for _ in range(_NETWORK_JOBS)]
    for owner, value in zip(owners, rng.permutation(NETWORK_MINUTES), strict=True):
        minutes[owner].append(float(value))
    return minutes


def _place(lengths: list[int], factor: float, resource: str, rng: np.random.Generator) -> list[Fault]:
    """Place faults of one strength apart from each other; very long ones are cut to fit."""
    total = sum(lengths)
    lengths = [max(1, length * min(total, STEPS * 4 // 5) // total) for length in lengths]
    free = STEPS - 300 - sum(lengths) - 60 * len(lengths)
    gaps = np.sort(rng.integers(0, free, len(lengths)))
    faults, used = [], 300
    for gap, length in zip(gaps, rng.permutation(lengths), strict=True):
        start = int(gap) + used
        faults.append(Fault(resource, constant(STEPS, start, start + int(length), factor)))
        used += int(length) + 60
    return faults


def _make(name: str, machine: Machine, faults: list[Fault], rng: np.random.Generator) -> Job:
    times = measure(machine, faults, STEPS, rng) * warm_up(STEPS, rng, int(rng.integers(2, 12)))
    return Job(name, times, slowdown_of(faults, STEPS))
