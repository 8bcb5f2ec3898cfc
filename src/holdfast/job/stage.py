"""The model's part that a worker holds: forward and backward of one micro-batch, whole or in two pieces.

Nothing here knows of other workers: tensors in, tensors out. The split of backward is torch's own
(``torch.distributed.pipelining``, after Zero Bubble, arXiv 2401.10241).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from holdfast.errors import InputError

Tensors = tuple[Tensor, ...]
Loss = Callable[..., Tensor]


class Passed:
    """What is kept of a micro-batch between its forward and the end of its backward."""

    __slots__ = ("groups", "inputs", "outputs")

    def __init__(self, inputs: Tensors, outputs: list[Tensor]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.groups: Any = None
        """Where the second half of a split backward goes on."""


class Stage:
    """A module, and the loss where it is the last one."""

    def __init__(
        self, module: nn.Module, number: int, *, loss: Loss | None, scale: float, autocast: torch.dtype | None
    ) -> None:
        self.module = module
        self.number = number
        self.is_first = number == 0
        self.is_last = loss is not None
        self.parameters = [each for each in module.parameters() if each.requires_grad]
        self.device = next((each.device for each in module.parameters()), torch.device("cpu"))
        self._loss = loss
        self._scale = scale
        """Of the loss: one over the number of all micro-batches of a step."""
        self._autocast = autocast

    def forward(self, inputs: Tensors, targets: Any = None) -> tuple[Tensors, Passed]:
        """Return what goes on to the next stage (from the last: its loss), and what backward needs."""
        with torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None):
            outputs = as_tensors(self.module(*inputs))
            if self._loss is not None:
                outputs = (_a_tensor(self._loss(*outputs, targets)),)
        if self._loss is not None:
            return (outputs[0].detach(),), Passed(inputs, [outputs[0] * self._scale])
        is_alone = len(outputs) == 1
        kept = [each if _may_be_cut_off(each, is_alone=is_alone) else each.clone() for each in outputs]
        return tuple(each.detach() for each in kept), Passed(inputs, kept)

    def backward(self, passed: Passed, gradients: Sequence[Tensor] | None) -> list[Tensor]:
        """Run backward in one piece and return the gradients for the stage before."""
        outputs, given = _with_graph(passed.outputs, gradients)
        if outputs:
            torch.autograd.backward(outputs, given)
        return _gradients_of(passed.inputs)

    def backward_input(self, passed: Passed, gradients: Sequence[Tensor] | None) -> list[Tensor]:
        """Run the half of backward that the stage before waits for."""
        if not any(each.requires_grad for each in passed.inputs):
            passed.groups = None if gradients is None else list(gradients)
            return []
        outputs, given = _with_graph(passed.outputs, gradients)
        if not all(_reaches(each, passed.inputs) for each in outputs):
            # The weights behind an output that no input leads to would be left out by the split.
            passed.groups = None if gradients is None else list(gradients)
            return _input_gradients(outputs, given, passed.inputs)
        _, passed.groups = stage_backward_input(outputs, given, list(passed.inputs), iter(self.parameters))
        found = _gradients_of(passed.inputs)
        passed.outputs = []
        return found

    def backward_weight(self, passed: Passed) -> None:
        """Run the half of backward that only the optimizer waits for; all of it where none was split off."""
        if passed.outputs:
            self.backward(passed, passed.groups)
        else:
            stage_backward_weight(iter(self.parameters), passed.groups)


def as_tensors(value: Any) -> Tensors:
    """Return the tensors that a stage hands on."""
    found = tuple(value) if isinstance(value, tuple | list) else (value,)
    for each in found:
        if not isinstance(each, Tensor):
            raise InputError(f"a stage gave {type(each).__name__}, expected a tensor or a tuple of tensors")
    return found


def receives_gradient(dtype: torch.dtype) -> bool:
    """Say whether a gradient comes back for a tensor that was handed on."""
    return dtype.is_floating_point or dtype.is_complex


def _a_tensor(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor):
        raise InputError(f"loss gave {type(loss).__name__}, expected a tensor of a single number")
    return loss


def _may_be_cut_off(output: Tensor, *, is_alone: bool) -> bool:
    """Say whether an output may be cut off from its graph in place, as the split of backward does.

    Views do not allow it; an input or a parameter that is handed on as it is would no longer ask for its
    gradient; and what other outputs were made of is still needed.
    """
    return not output.requires_grad or (is_alone and not output._is_view() and not output.is_leaf)


def _reaches(output: Tensor, inputs: Tensors) -> bool:
    """Say whether a gradient of the output leads to an input."""
    wanted = {id(each) for each in inputs}
    seen: set[Any] = set()
    nodes: list[Any] = [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if id(getattr(node, "variable", None)) in wanted:
            return True
        seen.add(node)
        # The first edge is followed first: along the residual connections it is a short way.
        nodes += [before for before, _ in reversed(node.next_functions)]
    return False


def _with_graph(
    outputs: Sequence[Tensor], gradients: Sequence[Tensor] | None
) -> tuple[list[Tensor], list[Tensor] | None]:
    """Keep the outputs that have a graph; gradients came for those that could have had one."""
    if gradients is None:
        return [each for each in outputs if each.requires_grad], None
    could = [each for each in outputs if receives_gradient(each.dtype)]
    pairs = [pair for pair in zip(could, gradients, strict=True) if pair[0].requires_grad]
    return [output for output, _ in pairs], [gradient for _, gradient in pairs]


def _gradients_of(inputs: Tensors) -> list[Tensor]:
    found = []
    for each in inputs:
        if each.requires_grad:
            found.append(each.grad if each.grad is not None else torch.zeros_like(each))
    return found


def _input_gradients(
    outputs: Sequence[Tensor], gradients: Sequence[Tensor] | None, inputs: Tensors
) -> list[Tensor]:
    """Return the gradients of the inputs, and leave the graph for those of the weights.

    They are not kept at the inputs: what comes there later must not be added to a message under way.
    """
    wanted = [each for each in inputs if each.requires_grad]
    found = torch.autograd.grad(outputs, wanted, gradients, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(each) if gradient is None else gradient
        for each, gradient in zip(wanted, found, strict=True)
    ]
