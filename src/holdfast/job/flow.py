"""The executor: one pass over a worker's instructions. Order lives in the schedule; nothing is decided here.

Receives are begun a little ahead, so that a message travels while the worker computes. Sends are waited for
one step later, when their receivers cannot but have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.job.mesh import TENSORS_PER_MESSAGE, Mesh, Work, wait
from holdfast.job.points import POINT_OF, Points
from holdfast.job.randomness import seed_device, seed_of
from holdfast.job.routes import NOBODY, Instruction
from holdfast.job.stage import Passed, Stage, Tensors, receives_gradient
from holdfast.job.status import Phase
from holdfast.job.sums import GradientSum
from holdfast.plan.ops import Op

AHEAD = 2
"""Instructions whose receives are begun before it is their turn."""


class Form(NamedTuple):
    """Shape and type of a tensor that travels between two stages."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.shape}"


class Forms(NamedTuple):
    """What a stage is given, and what it gives."""

    incoming: tuple[Form, ...]
    outgoing: tuple[Form, ...]


Load = Callable[[int, int, int], tuple[Tensors, Any]]
"""Step, pipeline and micro-batch in; inputs and targets out."""
Losses = dict[tuple[int, int], Tensor]
"""By pipeline and micro-batch."""


class Flow:
    """Carries micro-batches through one stage."""

    def __init__(self, stage: Stage, forms: Forms, points: Points, *, seed: int) -> None:
        self.mesh: Mesh | None = None
        """Set by every new generation."""
        self._stage = stage
        self._forms = forms
        self._points = points
        self._seed = seed
        self._passed: dict[tuple[int, int], Passed] = {}
        self._begun: dict[int, list[tuple[Work, Tensor]]] = {}
        self._sends: list[tuple[Work, Tensor]] = []
        self._older_sends: list[tuple[Work, Tensor]] = []

    def drop(self) -> None:
        """Forget everything that is under way: its generation is over."""
        self.mesh = None
        self._passed.clear()
        self._begun.clear()
        self._sends.clear()
        self._older_sends.clear()

    def train(
        self, order: Sequence[Instruction], load: Load, sums: GradientSum
    ) -> dict[tuple[int, int], Tensor]:
        """Do a step's work and return the losses that this worker computed."""
        losses: Losses = {}
        for index, instruction in enumerate(order):
            self._begin_receives(order, index)
            op = instruction.op
            with self._points.operation():
                if op.kind == "F":
                    loss = self._forward(index, instruction, load)
                    if loss is not None:
                        losses[op.pipeline, op.microbatch] = loss
                elif op.kind == "W":
                    self._backward_weight(index, op, sums)
                else:
                    self._backward(index, instruction, sums)
        self._points.after_ops(Phase.SETTLE)
        self._finish_sends()
        return losses

    @torch.no_grad()
    def evaluate(self, order: Sequence[Instruction], load: Load) -> Losses:
        """Do forwards alone, and return the losses that this worker computed."""
        losses: Losses = {}
        for index, instruction in enumerate(order):
            self._begin_receives(order, index)
            loss = self._forward(index, instruction, load)
            self._passed.clear()
            if loss is not None:
                losses[instruction.op.pipeline, instruction.op.microbatch] = loss
        self._finish_sends()
        return losses

    # --- operations ---------------------------------------------------------------------------

    def _forward(self, index: int, instruction: Instruction, load: Load) -> Tensor | None:
        op = instruction.op
        received = self._receive(index, op) if instruction.source != NOBODY else None
        self._enter(index, op)
        targets = None
        if received is None or instruction.target == NOBODY:
            given, targets = load(self._points.step, op.pipeline, op.microbatch)
            received = given if received is None else received
        inputs = tuple(_leaf(each, instruction.source) for each in received)
        seed_device(
            self._stage.device, seed_of(self._seed, self._points.step, op.pipeline, op.microbatch, op.stage)
        )
        outputs, self._passed[op.pipeline, op.microbatch] = self._stage.forward(inputs, targets)
        self._points.reach("done", op)
        if instruction.target == NOBODY:
            return outputs[0]
        self._check_forms(outputs)
        self._send(outputs, instruction)
        return None

    def _check_forms(self, outputs: Tensors) -> None:
        """Refuse what the next stage has no place for: gloo would end its process."""
        given = tuple(Form(tuple(each.shape), each.dtype) for each in outputs)
        if given != self._forms.outgoing:
            raise InputError(
                f"stage {self._stage.number} gave {', '.join(map(str, given))}, expected "
                f"{', '.join(map(str, self._forms.outgoing))} as for the first micro-batch"
            )

    def _backward(self, index: int, instruction: Instruction, sums: GradientSum) -> None:
        op = instruction.op
        gradients = self._receive(index, op) if instruction.source != NOBODY else None
        self._enter(index, op)
        if op.kind == "B":
            passed = self._passed.pop((op.pipeline, op.microbatch))
            found = self._stage.backward(passed, gradients)
            sums.add()
        else:
            found = self._stage.backward_input(self._passed[op.pipeline, op.microbatch], gradients)
        self._points.reach("done", op)
        if instruction.target != NOBODY:
            self._send(found, instruction)

    def _backward_weight(self, index: int, op: Op, sums: GradientSum) -> None:
        self._enter(index, op)
        self._stage.backward_weight(self._passed.pop((op.pipeline, op.microbatch)))
        sums.add()
        self._points.reach("done", op)

    def _enter(self, index: int, op: Op) -> None:
        self._points.enter(Phase.COMPUTE, index)
        self._points.reach(POINT_OF[op.kind], op)  # type: ignore[arg-type]

    # --- messages -----------------------------------------------------------------------------

    def _begin_receives(self, order: Sequence[Instruction], index: int) -> None:
        for later in range(index, min(index + AHEAD + 1, len(order))):
            instruction = order[later]
            if instruction.source != NOBODY and later not in self._begun:
                self._begun[later] = self._begin_receive(instruction)

    def _begin_receive(self, instruction: Instruction) -> list[tuple[Work, Tensor]]:
        assert self.mesh is not None
        forms = self._forms.incoming if instruction.op.kind == "F" else self._gradient_forms
        begun = []
        for number, form in enumerate(forms):
            buffer = torch.empty(form.shape, dtype=form.dtype)
            tag = instruction.tag_in * TENSORS_PER_MESSAGE + number
            begun.append((self.mesh.receive(buffer, instruction.source, tag), buffer))
        return begun

    @property
    def _gradient_forms(self) -> list[Form]:
        return [form for form in self._forms.outgoing if receives_gradient(form.dtype)]

    def _receive(self, index: int, op: Op) -> Tensors:
        self._points.enter(Phase.RECEIVE, index)
        self._points.reach("receive", op)
        received = []
        for work, buffer in self._begun.pop(index):
            wait(work)
            received.append(buffer.to(self._stage.device))
        return tuple(received)

    def _send(self, tensors: Sequence[Tensor], instruction: Instruction) -> None:
        assert self.mesh is not None
        self._points.reach("send", instruction.op)
        for number, tensor in enumerate(tensors):
            ready = tensor.to("cpu").contiguous()
            tag = instruction.tag_out * TENSORS_PER_MESSAGE + number
            self._sends.append((self.mesh.send(ready, instruction.target, tag), ready))

    def _finish_sends(self) -> None:
        for work, _ in self._older_sends:
            wait(work)
        self._older_sends, self._sends = self._sends, []


def _leaf(tensor: Tensor, source: int) -> Tensor:
    """Ask for the gradient of what came from another stage; what the data gave needs none."""
    if source != NOBODY and receives_gradient(tensor.dtype) and torch.is_grad_enabled():
        return tensor.requires_grad_()
    return tensor
