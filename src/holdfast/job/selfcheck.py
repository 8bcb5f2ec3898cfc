"""Is a stage a function of its input, its parameters and its seed? Found out by running it again.

Exact training repeats work: a micro-batch may be computed twice, by another worker, with backward in one
piece or in two. All of that has to give the same bits, and whatever does not is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.job.randomness import own_randomness, seed_device
from holdfast.job.stage import Stage, Tensors, as_tensors, receives_gradient

Trace = list[tuple[str, Tensors]]
"""What each module gave, in the order in which they finished."""
Computed = tuple[Trace, dict[str, Tensor | None]]
"""With the gradients of inputs and parameters, by name."""


def check_stage(stage: Stage, inputs: Tensors, targets: Any, *, repeats: int = 2) -> None:
    """Raise if the same micro-batch gives different bits when it is computed again."""
    with own_randomness(stage.device):
        first = _compute(stage, inputs, targets, is_split=False)
        for _ in range(repeats):
            _compare(stage, first, _compute(stage, inputs, targets, is_split=False), "computed again")
        _compare(
            stage, first, _compute(stage, inputs, targets, is_split=True), "with its backward split in two"
        )


def _compute(stage: Stage, inputs: Tensors, targets: Any, *, is_split: bool) -> Computed:
    """Return what every module gave, and the gradients of inputs and parameters."""
    trace: Trace = []
    fresh = tuple(_fresh(each) for each in inputs) if not stage.is_first else inputs
    hooks = [
        module.register_forward_hook(_recorder(trace, name or type(module).__name__))
        for name, module in stage.module.named_modules()
    ]
    try:
        seed_device(stage.device, 0)
        outputs, passed = stage.forward(fresh, targets)
    finally:
        for hook in hooks:
            hook.remove()
    given = None if stage.is_last else [_pattern(each) for each in outputs if receives_gradient(each.dtype)]
    if is_split:
        stage.backward_input(passed, given)
        stage.backward_weight(passed)
    else:
        stage.backward(passed, given)
    found = {name: each.grad for name, each in stage.module.named_parameters()}
    found |= {f"input {number}": each.grad for number, each in enumerate(fresh)}
    for each in stage.parameters:
        each.grad = None
    trace.append(("the loss" if stage.is_last else "the stage", outputs))
    return trace, found


def _compare(stage: Stage, one: Computed, other: Computed, how: str) -> None:
    for (name, before), (_, after) in zip(one[0], other[0], strict=False):
        if not _equal(before, after):
            raise InputError(
                f"stage {stage.number} is not exact: {name!r} gave another result for the same input and "
                f"seed, {how}"
            )
    for name, gradient in one[1].items():
        again = other[1][name]
        if gradient is None and again is None:
            continue
        if not _equal((gradient,), (again,)):
            raise InputError(
                f"stage {stage.number} is not exact: the gradient of {name!r} was another one, {how}"
            )


def _equal(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    """Compare bits: not a number equals itself, and -0 is not 0."""
    return all(
        a is not None and b is not None and a.dtype == b.dtype and a.shape == b.shape and _bits(a) == _bits(b)
        for a, b in zip(one, other, strict=True)
    )


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _recorder(trace: Trace, name: str) -> Callable[[Any, Any, Any], None]:
    def record(module: Any, inputs: Any, output: Any) -> None:
        trace.append((name, tuple(each.detach().clone() for each in _tensors(output))))

    return record


def _tensors(value: Any) -> Tensors:
    try:
        return as_tensors(value)
    except InputError:  # A module inside a stage may give what it likes.
        return ()


def _fresh(tensor: Tensor) -> Tensor:
    copy = tensor.detach().clone()
    return copy.requires_grad_() if receives_gradient(copy.dtype) else copy


def _pattern(like: Tensor) -> Tensor:
    """Return a gradient that is neither zero nor all alike."""
    numbers = torch.arange(like.numel(), device=like.device, dtype=torch.float32)
    return torch.sin(numbers + 1.0).to(like.dtype).view_as(like)
