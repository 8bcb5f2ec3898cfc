"""Try policies, then change the best a little again and again, until the bound is met or the effort is spent.

Where memory is plentiful the first policy usually meets the bound. Where it is tight, what a worker should do
next depends on every stage, so rules alone stay 2 to 13 % above the bound; simulated annealing over the
rules' numbers, with the list scheduler as judge, finds most of the rest.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.plan.dispatch import Floor, Placed, Policy, dispatch
from holdfast.plan.draft import last_ends, latest_starts, makespan_of
from holdfast.plan.problem import Problem

Goal = Literal["period", "makespan"]
ENOUGH = 1.0001
"""A value this close to its bound is not worth another try."""
_HEAT = 0.004
"""How much worse, relative to the bound, a change may be at first and still be kept for a while."""


class Found(NamedTuple):
    """A draft and what it is worth."""

    value: float
    placed: list[Placed]


def value_of(problem: Problem, placed: Sequence[Placed], goal: Goal) -> float:
    """The makespan, or the period when every stage starts as late as it can."""
    if goal == "makespan":
        return makespan_of(placed)
    ends = last_ends(problem, placed)
    return max(map(float.__sub__, ends, latest_starts(problem, placed, ends)))


def search(floors: Sequence[Floor], *, goal: Goal, bound: float, effort: int, rng: random.Random) -> Found:
    """Return the best draft found while placing about ``effort`` operations; at least one is always tried."""
    problem = floors[0].problem
    tries = max(1, effort // (3 * problem.dp * problem.pp * problem.microbatches))
    best = Found(math.inf, [])
    at = (floors[0], next(policies(problem)))
    for floor, policy in itertools.islice(_openings(floors), max(1, tries // 2)):
        placed = dispatch(floor, policy)
        value = value_of(problem, placed, goal)
        tries -= 1
        if value < best.value:
            best, at = Found(value, placed), (floor, policy)
        if best.value <= bound * ENOUGH:
            return best
    return _anneal(floors, at, best, Task(goal, bound, tries), rng)


class Task(NamedTuple):
    """What annealing is to reach."""

    goal: Goal
    bound: float
    tries: int


def _anneal(
    floors: Sequence[Floor], at: tuple[Floor, Policy], best: Found, task: Task, rng: random.Random
) -> Found:
    problem, current = floors[0].problem, best.value
    for turn in range(task.tries):
        floor = rng.choice(floors) if rng.random() < 0.1 else at[0]
        policy = changed(problem, at[1], rng)
        placed = dispatch(floor, policy)
        value = value_of(problem, placed, task.goal)
        heat = _HEAT * task.bound * (1 - turn / task.tries)
        if value <= current or rng.random() < math.exp((current - value) / heat):
            at, current = (floor, policy), value
        if value < best.value:
            best = Found(value, placed)
            if value <= task.bound * ENOUGH:
                break
    return best


def _openings(floors: Sequence[Floor]) -> Iterator[tuple[Floor, Policy]]:
    for policy in policies(floors[0].problem):
        for floor in floors:
            yield floor, policy


def policies(problem: Problem) -> Iterator[Policy]:
    """Yield rules that are good for many problems, the most often best one first."""
    caps = tuple(problem.cap(stage) for stage in range(problem.pp))
    ranks = tuple(float(index) for _ in range(problem.dp) for index in range(problem.microbatches))
    everywhere = problem.pp
    for loyalty, backlog, forward_first, input_before_weight in itertools.product(
        (0.5, 3.0), (math.inf, 4, 1, 0, 2), (False, True), (True, False)
    ):
        yield Policy(
            depth=caps,
            backlog=(backlog,) * everywhere,
            input_before_weight=(input_before_weight,) * everywhere,
            forward_first=(forward_first,) * everywhere,
            loyalty=(loyalty,) * everywhere,
            forward_rank=ranks,
            input_rank=ranks,
        )


def changed(problem: Problem, policy: Policy, rng: random.Random) -> Policy:
    """Return the policy with one thing changed at random."""
    stage = rng.randrange(problem.pp)
    choice = rng.choices(list(_CHANGES), weights=[weight for _, weight in _CHANGES.values()])[0]
    values = list(getattr(policy, choice))
    if choice.endswith("rank"):
        _rerank(problem, values, rng)
    else:
        values[stage] = _CHANGES[choice][0](problem, stage, rng)
    return msgspec.structs.replace(policy, **{choice: tuple(values)})


def _rerank(problem: Problem, ranks: list[float], rng: random.Random) -> None:
    """Let one pipeline go earlier or later, or a few micro-batches."""
    if rng.random() < 0.5:
        pipeline, by = rng.randrange(problem.dp), rng.choice((-2.0, -1.0, -0.6, 0.6, 1.0, 2.0))
        for q in range(pipeline * problem.microbatches, (pipeline + 1) * problem.microbatches):
            ranks[q] += by
        return
    for _ in range(rng.choice((1, 2, 5))):
        ranks[rng.randrange(len(ranks))] += rng.uniform(-3, 3)


def _random_depth(problem: Problem, stage: int, rng: random.Random) -> int:
    cap = min(problem.cap(stage), 4 * problem.pp)
    return rng.randint(max(1, min(cap, problem.pp - stage - 1)), cap)


_Change = Callable[[Problem, int, random.Random], object]
_CHANGES: dict[str, tuple[_Change, float]] = {
    "depth": (_random_depth, 0.15),
    "backlog": (lambda problem, stage, rng: rng.choice((0, 1, 2, 3, 4, 6, math.inf)), 0.15),
    "input_before_weight": (lambda problem, stage, rng: rng.random() < 0.5, 0.15),
    "forward_first": (lambda problem, stage, rng: rng.random() < 0.5, 0.15),
    "loyalty": (lambda problem, stage, rng: rng.choice((0.0, 0.5, 1.5, 3.0, 100.0)), 0.15),
    "forward_rank": (_random_depth, 0.125),
    "input_rank": (_random_depth, 0.125),
}
