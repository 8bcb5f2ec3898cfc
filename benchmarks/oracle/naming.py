"""Which micro-batches and which workers could swap their names without anybody noticing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from holdfast.plan.problem import Problem

Routes = Mapping[tuple[int, int, int], int]
"""Pipeline, micro-batch and stage to the pipeline whose worker does it; what is not there is free."""
Choices = dict[tuple[int, int], tuple[int, ...]]
"""Micro-batch (numbered through all pipelines) and stage to the pipelines whose worker may do it."""


def choices_of(problem: Problem, routes: Routes) -> Choices:
    choices: Choices = {}
    for index in range(problem.dp * problem.microbatches):
        for stage in range(problem.pp):
            route = routes.get((*divmod(index, problem.microbatches), stage))
            choices[index, stage] = tuple(problem.live(stage)) if route is None else (route,)
    return choices


def alike(problem: Problem, choices: Choices) -> list[list[int]]:
    """Return the micro-batches in groups that have the same choices everywhere."""
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index in range(problem.dp * problem.microbatches):
        groups.setdefault(tuple(choices[index, stage] for stage in range(problem.pp)), []).append(index)
    return list(groups.values())


def twins_of(problem: Problem, choices: Choices, stage: int) -> list[tuple[int, int]]:
    """Return neighbouring pairs of workers with one speed that the same micro-batches can choose."""
    kinds: dict[tuple[float, tuple[int, ...]], list[int]] = {}
    for pipeline in problem.live(stage):
        choosers = tuple(index for (index, at), who in choices.items() if at == stage and pipeline in who)
        kinds.setdefault((problem.speeds[pipeline][stage], choosers), []).append(pipeline)
    return [pair for alike in kinds.values() for pair in pairwise(alike)]


def chains_of(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Return the rows that neighbouring pairs came from."""
    chains: list[list[int]] = []
    for first, second in pairs:
        if chains and chains[-1][-1] == first:
            chains[-1].append(second)
        else:
            chains.append([first, second])
    return chains
