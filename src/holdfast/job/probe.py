"""Before the first step: do the stages fit each other, what do they hand on, how much do they keep?

One micro-batch is sent through every stage as a description: a worker learns what the stage before gives,
runs its own stage on a tensor of that form, and tells the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from holdfast.errors import InputError
from holdfast.job.flow import Form, Forms, Load
from holdfast.job.mesh import TENSORS_PER_MESSAGE
from holdfast.job.stage import Passed, Stage, Tensors, as_tensors


class Probed(NamedTuple):
    """What was found out about a stage."""

    forms: Forms
    activation_bytes: int
    """What the stage keeps of one micro-batch until its backward is done."""
    sample: tuple[Tensors, Any]
    """An input of the stage and, for the last one, targets."""


def probe(stage: Stage, load: Load, store: Any, *, step: int, pipeline: int) -> Probed:
    """Run a stage once on the first micro-batch of a pipeline, and return what it takes and gives."""
    data = load(step, pipeline, 0) if stage.is_first or stage.is_last else ((), None)
    inputs = data[0] if stage.is_first else _stand_ins(_decode(store.get(str(stage.number - 1))), stage)
    incoming = tuple(map(_form, inputs))
    before = _versions(stage.module)
    with _count_saved(stage) as saved:
        outputs, passed = _run(stage, inputs, data[1], incoming)
    _check_buffers(stage.module, before, stage.number)
    if stage.is_last:
        _check_loss(passed.outputs[0])
        return Probed(Forms(incoming, ()), saved.size_bytes, (inputs, data[1]))
    if len(outputs) > TENSORS_PER_MESSAGE:
        raise InputError(
            f"stage {stage.number} gives {len(outputs)} tensors, expected at most {TENSORS_PER_MESSAGE}"
        )
    outgoing = tuple(map(_form, outputs))
    store.set(str(stage.number), encode(outgoing))
    return Probed(Forms(incoming, outgoing), saved.size_bytes, (inputs, None))


def _run(stage: Stage, inputs: Tensors, targets: Any, incoming: Sequence[Form]) -> tuple[Tensors, Passed]:
    number = stage.number
    try:
        return stage.forward(inputs, targets)
    except InputError as error:
        raise InputError(f"stage {number}: {error}") from error
    except Exception as error:
        given = ", ".join(map(str, incoming)) or "nothing"
        origin = "the data gives" if number == 0 else f"stage {number - 1} gives"
        first = str(error).splitlines()[0] if str(error) else ""
        raise InputError(
            f"stage {number} cannot take what {origin}: {given}: {type(error).__name__}: {first}"
        ) from error


def _check_loss(loss: Tensor) -> None:
    if loss.numel() != 1:
        raise InputError(f"loss gave a tensor of shape {tuple(loss.shape)}, expected a single number")
    if not loss.requires_grad:
        raise InputError("loss gave a tensor without a gradient, expected one that depends on the parameters")


def _versions(module: nn.Module) -> dict[str, tuple[Tensor, int]]:
    return {name: (buffer, buffer._version) for name, buffer in module.named_buffers()}


def _check_buffers(module: nn.Module, before: dict[str, tuple[Tensor, int]], number: int) -> None:
    """Refuse buffers that were written to, or replaced by others."""
    changed = []
    for name, (buffer, version) in _versions(module).items():
        known, version_then = before.get(name, (None, 0))
        if buffer is not known or version != version_then:
            changed.append(name)
    if changed:
        raise InputError(
            f"stage {number}: buffer {changed[0]!r} changes in forward (batch statistics, counters); a "
            "micro-batch that is computed again, or by a peer, would change it differently: use a module "
            "without such buffers, such as LayerNorm or GroupNorm"
        )


class _count_saved:  # noqa: N801 - used as a function in `with`.
    """Counts the bytes that autograd keeps, parameters excepted, each piece of memory once."""

    def __init__(self, stage: Stage) -> None:
        self.size_bytes = 0
        self._seen = {each.untyped_storage().data_ptr() for each in stage.module.parameters()}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    def __enter__(self) -> _count_saved:
        self._hooks.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.__exit__(*exception)

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.size_bytes += storage.nbytes()
        return tensor


def shared_weights(stages: Sequence[tuple[int, nn.Module]]) -> Iterator[str]:
    """Yield a line for every parameter that two stages share."""
    owners: dict[int, tuple[int, str]] = {}
    for number, module in stages:
        for name, parameter in module.named_parameters():
            first = owners.setdefault(id(parameter), (number, name))
            if first[0] != number:
                yield (
                    f"stages {first[0]} and {number} share a weight ({first[1]!r} and {name!r}); stages live "
                    "on different workers and would each train a copy of their own: untie them"
                )


def _form(tensor: Tensor) -> Form:
    return Form(tuple(tensor.shape), tensor.dtype)


def _stand_ins(forms: Sequence[Form], stage: Stage) -> Tensors:
    # Neither zeros nor all alike, so that a stage has something to compute; integers may be indices.
    made = [
        torch.linspace(-1.0, 1.0, math.prod(form.shape), device=stage.device).to(form.dtype).view(form.shape)
        if form.dtype.is_floating_point
        else torch.zeros(form.shape, dtype=form.dtype, device=stage.device)
        for form in forms
    ]
    return tuple(each.requires_grad_() if each.is_floating_point() else each for each in made)


def encode(forms: Sequence[Form]) -> bytes:
    """Return what a stage gives as it is told to the next one."""
    return msgspec.json.encode([[list(form.shape), str(form.dtype).removeprefix("torch.")] for form in forms])


def _decode(data: bytes) -> list[Form]:
    rows = msgspec.json.decode(data, type=list[tuple[list[int], str]])
    return [Form(tuple(shape), _dtype(name)) for shape, name in rows]


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"{name!r} is no type of a tensor")
    return found


class Loader:
    """The user's data function, with its promises checked: same shapes for every micro-batch."""

    def __init__(self, data: Any, device: torch.device) -> None:
        self._data = data
        self._device = device
        self._shapes: tuple[list[tuple[int, ...]], tuple[int, ...] | None] | None = None

    def __call__(self, step: int, pipeline: int, microbatch: int) -> tuple[Tensors, Any]:
        given = self._data(step, pipeline, microbatch)
        where = f"data({step}, {pipeline}, {microbatch})"
        if not (isinstance(given, tuple) and len(given) == 2):
            raise InputError(f"{where} gave {type(given).__name__}, expected a pair: inputs, targets")
        inputs = tuple(each.to(self._device) for each in _inputs(given[0], where))
        targets = given[1].to(self._device) if isinstance(given[1], Tensor) else given[1]
        shapes = ([tuple(each.shape) for each in inputs], tuple(getattr(targets, "shape", ())) or None)
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            raise InputError(f"{where} gave {_say(shapes)}, expected {_say(self._shapes)} as before")
        return inputs, targets


def _inputs(value: Any, where: str) -> Tensors:
    try:
        return as_tensors(value)
    except InputError:
        raise InputError(
            f"{where} gave inputs of type {type(value).__name__}, expected a tensor or a tuple of tensors"
        ) from None


def _say(shapes: tuple[list[tuple[int, ...]], tuple[int, ...] | None]) -> str:
    return f"inputs of shape {', '.join(map(str, shapes[0]))} and targets of shape {shapes[1]}"
