"""Jobs that detectors get wrong, kind by kind; where it makes sense, a third of a kind has no fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from series.machine import (
    Fault,
    Machine,
    constant,
    four_nodes,
    measure,
    one_node,
    slowdown_of,
    warm_up,
)
from series.truth import Floats, Job

STEPS = 3000
JOBS = 60
_HEALTHY = JOBS // 3


@dataclass(frozen=True)
class Extra:
    """What a kind has beside faults."""

    factors: Floats | None = None
    """Of each step's time; how the job is, no fault."""
    work: Floats | None = None
    warm_up: int = 5


NOTHING = Extra()

Draw = Callable[[int, Machine, np.random.Generator], Job]


def draw_hard(kind: str, seed: int) -> list[Job]:
    """Return the jobs of a kind."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    jobs = []
    for number in range(JOBS):
        machine = one_node(rng) if number % 2 else four_nodes(rng)
        jobs.append(KINDS[kind](number, machine, rng))
    return jobs


def _ramp(number: int, machine: Machine, rng: np.random.Generator) -> Job:
    """It gets worse over hundreds of steps, stays so, and ends at once or as it came."""
    rise, hold = int(rng.integers(200, 1200)), int(rng.integers(200, 600))
    start, top = int(rng.integers(300, 900)), rng.uniform(0.2, 0.6)
    fall = rise // 2 if number % 2 else 1
    curve = np.interp(
        np.arange(STEPS),
        [start, start + rise, start + rise + hold, start + rise + hold + fall],
        [0, top, top, 0],
    )
    return _job(f"ramp {number}", machine, [Fault(_resource(machine, rng), curve)], rng)


def _chain(number: int, machine: Machine, rng: np.random.Generator) -> Job:
    """Steps of 6 %, none of which is a change worth telling by itself."""
    curve = np.zeros(STEPS)
    at = int(rng.integers(300, 700))
    for level in range(1, int(rng.integers(3, 6)) + 1):
        curve[at:] = 1.06**level - 1
        at += int(rng.integers(60, 300))
    curve[at + int(rng.integers(100, 500)) :] = 0
    return _job(f"chain {number}", machine, [Fault(_resource(machine, rng), curve)], rng)


def _checkpoint(number: int, machine: Machine, rng: np.random.Generator) -> Job:
    """Every so often a step or two take several times as long; that is how the job is."""
    every, length = int(rng.integers(25, 200)), int(rng.integers(1, 3))
    factors = np.ones(STEPS)
    for offset in range(length):
        marked = np.arange(every + offset, STEPS, every)
        factors[marked] = rng.uniform(2, 6) * rng.uniform(0.9, 1.1, len(marked))
    return _job(f"checkpoint {number}", machine, _plain(number, machine, rng), rng, Extra(factors=factors))


def _lengths(number: int, machine: Machine, rng: np.random.Generator) -> Job:
    """Sequences are longer or shorter from step to step, and grow over the job in every second one."""
    work = np.exp(0.2 * rng.standard_normal(STEPS))
    if number % 2:
        work *= np.interp(np.arange(STEPS), [0, STEPS], [1, rng.uniform(1.3, 2.0)])
    fixed = rng.uniform(0.05, 0.2)
    factors = fixed + (1 - fixed) * work
    return _job(
        f"lengths {number}", machine, _plain(number, machine, rng), rng, Extra(factors=factors, work=work)
    )


def _overlap(number: int, machine: Machine, rng: np.random.Generator) -> Job:
    """A second fault begins while the first is there, and ends before or after it."""
    first, length = int(rng.integers(300, 900)), int(rng.integers(500, 1200))
    second = first + int(rng.integers(80, length - 100))
    faults = [
        Fault("gpu", constant(STEPS, first, first + length, rng.uniform(1.15, 1.5))),
        Fault("rdma", constant(STEPS, second, second + int(rng.integers(100, 900)), rng.uniform(1.3, 1.8))),
    ]
    return _job(f"overlap {number}", machine, faults, rng)


def _start(number: int, machine: Machine, rng: np.random.Generator) -> Job:
    """The fault comes while the job still warms up: what is healthy has hardly been seen, or not at all."""
    length = int(rng.integers(5, 40))
    faults = []
    if number >= _HEALTHY:
        start = int(rng.integers(2, 2 * length))
        end = start + int(rng.integers(100, 800))
        faults = [Fault(_resource(machine, rng), constant(STEPS, start, end, rng.uniform(1.15, 1.8)))]
    return _job(f"start {number}", machine, faults, rng, Extra(warm_up=length))


KINDS: dict[str, Draw] = {
    "ramp": _ramp,
    "chain": _chain,
    "checkpoint": _checkpoint,
    "lengths": _lengths,
    "overlap": _overlap,
    "start": _start,
}


def _plain(number: int, machine: Machine, rng: np.random.Generator) -> list[Fault]:
    if number < _HEALTHY:
        return []
    start = int(rng.integers(300, 1800))
    end = start + int(rng.integers(200, 800))
    return [Fault(_resource(machine, rng), constant(STEPS, start, end, rng.uniform(1.15, 1.6)))]


def _resource(machine: Machine, rng: np.random.Generator) -> str:
    return str(rng.choice(["rdma", "cpu"] if machine.rdma else ["gpu", "cpu"]))


def _job(
    name: str, machine: Machine, faults: list[Fault], rng: np.random.Generator, extra: Extra = NOTHING
) -> Job:
    times = measure(machine, faults, STEPS, rng) * warm_up(STEPS, rng, extra.warm_up)
    if extra.factors is not None:
        times = times * extra.factors
    return Job(name, times, slowdown_of(faults, STEPS), extra.work)
