"""Try policies, then change the best a little again and again, until the bound is met or the effort is spent.

Where memory is plentiful the first policy usually meets the bound. Where it is tight, what a worker should do
next depends on every stage, so rules alone stay 2 to 13 % above the bound; simulated annealing over the
rules' numbers, with the list scheduler as judge, finds most of the rest.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.plan.dispatch import Floor, Placed, Policy, dispatch
from holdfast.plan.draft import last_ends, latest_starts, makespan_of
from holdfast.plan.problem import Problem

Goal = Literal["period", "makespan"]
ENOUGH = 1.0001
"""A value this close to its bound is not worth another try."""
_HEAT = 0.01
"""How much worse, relative to the bound, a change may be at first and still be kept for a while."""

_ROUND = 300
"""Tries after which a search in a small problem begins again from the next best rules."""


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


class Task(NamedTuple):
    """What a search is to reach, and at what price."""

    goal: Goal
    bound: float
    effort: int
    """About how many operations may be placed; one draft is always made."""


class _Position(NamedTuple):
    """Where a search stands."""

    floor: Floor
    policy: Policy
    value: float


def search(floors: Sequence[Floor], task: Task, rng: random.Random) -> Found:
    """Return the best draft found; the floors are ways to route, the last one for when there is one try."""
    problem = floors[0].problem
    tries = max(1, task.effort // (3 * problem.dp * problem.pp * problem.microbatches))
    floors = floors if tries >= len(floors) else floors[-1:]
    best, starts = Found(math.inf, []), []
    for policy, floor in itertools.islice(itertools.product(policies(problem), floors), max(1, tries // 3)):
        placed = dispatch(floor, policy)
        value = value_of(problem, placed, task.goal)
        starts.append(_Position(floor, policy, value))
        if value < best.value:
            best = Found(value, placed)
        if best.value <= task.bound * ENOUGH:
            return best
    left = tries - len(starts)
    rounds = _rounds(starts, left)
    for at in rounds:
        best = _anneal(at, best, task, left // len(rounds), rng)
        if best.value <= task.bound * ENOUGH:
            break
    return best


def _rounds(starts: list[_Position], tries: int) -> list[_Position]:
    """Where to go on from, best first: open and closed floors by turns, each for a while."""
    starts.sort(key=lambda at: at.value)
    is_open = [at for at in starts if at.floor.is_open]
    closed = [at for at in starts if not at.floor.is_open]
    by_turns = [at for pair in itertools.zip_longest(is_open, closed) for at in pair if at is not None]
    return by_turns[: max(2, tries // _ROUND)]


def _anneal(at: _Position, best: Found, task: Task, tries: int, rng: random.Random) -> Found:
    problem = at.floor.problem
    for turn in range(tries):
        policy = changed(problem, at.policy, rng)
        placed = dispatch(at.floor, policy)
        value = value_of(problem, placed, task.goal)
        heat = _HEAT * task.bound * (1 - turn / tries)
        if value <= at.value or rng.random() < math.exp((at.value - value) / heat):
            at = _Position(at.floor, policy, value)
        if value < best.value:
            best = Found(value, placed)
            if value <= task.bound * ENOUGH:
                break
    return best


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
    """Return the policy with one thing changed at random: a rule at one stage, or some ranks."""
    field = rng.choice(
        ("depth", "backlog", "input_before_weight", "forward_first", "loyalty", "forward_rank", "input_rank")
    )
    values = list(getattr(policy, field))
    if field.endswith("rank"):
        _rerank(problem, values, rng)
    else:
        stage = rng.randrange(problem.pp)
        values[stage] = _random_rule(problem, field, stage, rng)
    return msgspec.structs.replace(policy, **{field: tuple(values)})


def _random_rule(problem: Problem, field: str, stage: int, rng: random.Random) -> float:
    if field == "depth":
        cap = min(problem.cap(stage), 4 * problem.pp)
        return rng.randint(max(1, min(cap, problem.pp - stage - 1)), cap)
    if field == "backlog":
        return rng.choice((0, 1, 2, 3, 4, 6, math.inf))
    if field == "loyalty":
        return rng.choice((-2.0, -0.5, 0.0, 0.5, 3.0))
    return rng.random() < 0.5


def _rerank(problem: Problem, ranks: list[float], rng: random.Random) -> None:
    """Let one pipeline go earlier or later, or a few micro-batches."""
    if rng.random() < 0.5:
        pipeline, by = rng.randrange(problem.dp), rng.choice((-2.0, -1.0, -0.6, 0.6, 1.0, 2.0))
        for q in range(pipeline * problem.microbatches, (pipeline + 1) * problem.microbatches):
            ranks[q] += by
        return
    for _ in range(rng.choice((1, 2, 5))):
        ranks[rng.randrange(len(ranks))] += rng.uniform(-3, 3)
