"""Planning problems to measure on: random ones, each replayed by its seed, and jobs with dead workers."""

from __future__ import annotations

import random

from holdfast.plan.problem import Costs, Problem, Worker, make_speeds


def random_problem(seed: int) -> Problem:
    """Return a job of 2-8 pipelines and 2-8 stages with uneven stages and some workers slow or dead."""
    rng = random.Random(seed)
    dp, pp = rng.randint(2, 8), rng.randint(2, 8)
    return Problem(
        dp=dp,
        pp=pp,
        microbatches=rng.randint(pp, 4 * pp),
        costs=tuple(_random_costs(rng) for _ in range(pp)),
        comm=rng.choice((0.0, 0.0, 0.1, 0.25)),
        memory=_random_memory(rng, pp),
        speeds=_random_speeds(rng, dp, pp),
    )


def small_problem(seed: int) -> Problem:
    """Return a job small enough for a solver, with fewer micro-batches than stages or about as many."""
    rng = random.Random(seed)
    dp, pp = rng.randint(2, 3), rng.randint(2, 4)
    return Problem(
        dp=dp,
        pp=pp,
        microbatches=rng.randint(1, pp),
        memory=rng.choice((None, (pp,) * pp)),
        speeds=_random_speeds(rng, dp, pp),
    )


def hit_problem(dp: int, pp: int, microbatches: int, dead: list[Worker]) -> Problem:
    """Return a job with equal stages in which some workers are dead."""
    speeds = make_speeds(dp, pp, dict.fromkeys(dead, 0.0))
    return Problem(dp=dp, pp=pp, microbatches=microbatches, speeds=speeds)


def _random_costs(rng: random.Random) -> Costs:
    return Costs(*(rng.randint(2, 8) / 4 for _ in range(3)))


def _random_memory(rng: random.Random, pp: int) -> tuple[int, ...] | None:
    """A cap from pp to four times that, or none; a third of the caps are pp, where it is hardest."""
    cap = rng.choice((None, pp, rng.randint(pp, 2 * pp), rng.randint(pp, 4 * pp)))
    return None if cap is None else (cap,) * pp


def _random_speeds(rng: random.Random, dp: int, pp: int) -> tuple[tuple[float, ...], ...]:
    """One worker in five is hit, at least one of all: dead as often as slow. No stage dies altogether."""
    changed = {}
    for stage in range(pp):
        spared = rng.randrange(dp)
        for pipeline in range(dp):
            if pipeline != spared and rng.random() < 0.2:
                changed[Worker(pipeline, stage)] = rng.choice((0.0, rng.choice((0.25, 0.5, 0.75, 0.9))))
    if not changed:
        changed[Worker(rng.randrange(dp), rng.randrange(pp))] = 0.5
    return make_speeds(dp, pp, changed)
