"""Exact sums over workers that are not there: what each adds, and what the stage makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.job.sums import ExactSum, Reduced

Gradients = list[list[Tensor | None]]
"""Of each micro-batch, one per parameter."""


class Meeting:
    """Stands for the groups of a stage: adds up what several workers hold, one after the other."""

    def __init__(self, count: int) -> None:
        self.peers = list(range(count))
        self.others: list[tuple[Tensor, Tensor]] = []
        self.kept: list[Tensor] = []

    def sum_stage(self, tensor: Tensor) -> None:
        self.kept.append(tensor.clone())
        for flat, _ in self.others:
            tensor += flat

    def max_stage(self, tensor: Tensor) -> None:
        self.kept.append(tensor.clone())
        for _, seen in self.others:
            torch.maximum(tensor, seen, out=tensor)


def parameters_like(gradients: Sequence[Tensor | None]) -> list[nn.Parameter]:
    """Return parameters that the gradients fit; of one number where there is none."""
    return [nn.Parameter(torch.zeros(1) if g is None else torch.zeros_like(g)) for g in gradients]


def add_all(sums: Any, parameters: list[nn.Parameter], gradients: Gradients) -> None:
    """Let a sum take in micro-batch after micro-batch."""
    for each in gradients:
        for parameter, gradient in zip(parameters, each, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        sums.add()


def reduce_over(shares: list[Gradients], exponents: list[int] | None) -> Reduced:
    """Return what the last of several workers gets, each having a share of the micro-batches."""
    meeting = Meeting(len(shares))
    terms = sum(map(len, shares))
    like = max(
        (each for share in shares for each in share), key=lambda each: sum(g is not None for g in each)
    )
    for number, share in enumerate(shares):
        parameters = parameters_like(like)
        sums = ExactSum(parameters, terms=terms)
        sums.exponents = exponents
        add_all(sums, parameters, share)
        meeting.kept = []
        reduced = sums.reduce(meeting)  # type: ignore[arg-type]
        if number < len(shares) - 1:
            meeting.others.append((meeting.kept[0], meeting.kept[1]))
    return reduced


def sum_twice(gradients: Gradients) -> tuple[Reduced, ExactSum]:
    """Return the sum over one worker as a first step makes it: once for the magnitudes, once for itself."""
    parameters = parameters_like(gradients[0])
    sums = ExactSum(parameters, terms=len(gradients))
    add_all(sums, parameters, gradients)
    first = sums.reduce(Meeting(1))  # type: ignore[arg-type]
    assert first.overflowed or math.inf in first.magnitudes
    sums.exponents = sums.exponents_for(first)
    add_all(sums, parameters, gradients)
    return sums.reduce(Meeting(1)), sums  # type: ignore[arg-type]


def bits(tensors: Sequence[Tensor | None]) -> list[bytes | None]:
    """Return what must be the same."""
    return [None if each is None else each.view(torch.uint8).numpy().tobytes() for each in tensors]
