"""A step of a job as a sum of shares, each with the noise of its resource; and what may happen to it.

Coefficients of variation are those that FALCON measured: intra-GPU 0.01, NVLink 0.02, PCIe 0.09, RDMA 0.29.
The noise of a resource applies to that resource's share of the step, and grows with it when a fault makes it
longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from series.truth import Floats

GPU_CV, NVLINK_CV, PCIE_CV, RDMA_CV = 0.01, 0.02, 0.09, 0.29


@dataclass(frozen=True)
class Machine:
    """How a healthy step is made up; the shares add up to 1."""

    step_s: float
    gpu: float
    nvlink: float
    rdma: float
    memory: float
    """How much of a step's deviation on the network is still there in the next."""


@dataclass(frozen=True)
class Fault:
    """Something that makes a resource slower, by a factor of the whole step, from step to step."""

    resource: str
    """``gpu``, ``rdma``, or ``cpu``, which is a share that only a fault brings."""
    curve: Floats
    """Seconds that it adds to each step, over the healthy step time."""


def one_node(rng: np.random.Generator) -> Machine:
    """Return the 4-GPU machine of FALCON's computation probe: 10,000 iterations in 70 to 90 minutes."""
    nvlink = rng.uniform(0.1, 0.3)
    return Machine(rng.uniform(0.42, 0.54), 1 - nvlink, nvlink, 0.0, 0.0)


def four_nodes(rng: np.random.Generator) -> Machine:
    """Return the machines of the communication probe: 10,000 iterations in about 5 hours, DP over RoCE."""
    nvlink, rdma = rng.uniform(0.1, 0.25), rng.uniform(0.1, 0.35)
    return Machine(rng.uniform(1.6, 2.0), 1 - nvlink - rdma, nvlink, rdma, rng.uniform(0.0, 0.5))


def constant(steps: int, start: int, end: int, factor: float) -> Floats:
    """Return the curve of a fault that makes a step so many times as long, at once and until it is over."""
    curve = np.zeros(steps)
    curve[max(start, 0) : end] = factor - 1
    return curve


def measure(machine: Machine, faults: list[Fault], steps: int, rng: np.random.Generator) -> Floats:
    """Return step times: every share with its noise, slow drift, and single steps that took longer."""
    added = {name: sum((f.curve for f in faults if f.resource == name), np.zeros(steps)) for name in _KINDS}
    total = (machine.gpu + added["gpu"]) * _noise(GPU_CV, steps, rng)
    total = total + machine.nvlink * _noise(NVLINK_CV, steps, rng)
    total = total + added["cpu"] * _noise(PCIE_CV, steps, rng)
    total = total + (machine.rdma + added["rdma"]) * _noise(RDMA_CV, steps, rng, machine.memory)
    return machine.step_s * total * _drift(steps, rng) * _spikes(steps, rng)


def slowdown_of(faults: list[Fault], steps: int) -> Floats:
    """Return the expected step time over the healthy one."""
    return 1 + sum((fault.curve for fault in faults), np.zeros(steps))


def warm_up(steps: int, rng: np.random.Generator, length: int) -> Floats:
    """Return the factors of a start: a first step that compiles, and some that are not yet fast."""
    factors = np.ones(steps)
    factors[:length] += rng.uniform(0.2, 1.0) * np.exp(-np.arange(length) / max(1.0, length / 3))
    factors[0] = rng.uniform(10, 80)
    return factors


_KINDS = ("gpu", "cpu", "rdma")


def _noise(cv: float, steps: int, rng: np.random.Generator, memory: float = 0.0) -> Floats:
    """Return factors around 1, skewed to the right as latencies are."""
    normal = rng.standard_normal(steps)
    for index in range(1, steps if memory else 0):
        normal[index] = memory * normal[index - 1] + np.sqrt(1 - memory**2) * normal[index]
    sigma = float(np.sqrt(np.log1p(cv**2)))
    factors: Floats = np.exp(sigma * normal - sigma**2 / 2)
    return factors


def _drift(steps: int, rng: np.random.Generator) -> Floats:
    period, phase = rng.uniform(2000, 8000), rng.uniform(0, 2 * np.pi)
    wave: Floats = np.sin(2 * np.pi * np.arange(steps) / period + phase)
    return 1 + rng.uniform(0, 0.015) * wave


def _spikes(steps: int, rng: np.random.Generator) -> Floats:
    factors = np.ones(steps)
    hit = rng.random(steps) < rng.uniform(0.0005, 0.004)
    factors[hit] = rng.uniform(1.2, 3.0, int(hit.sum()))
    return factors
