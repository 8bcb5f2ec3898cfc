"""Backward in one piece and in two give the same bits, whatever a stage takes and gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from holdfast.errors import InputError
from holdfast.job.stage import Stage, as_tensors
from holdfast.lab import gpt

WIDTH = 8
Grads = dict[str, Tensor | None]


class Base(nn.Module):
    """Two layers and a vector, used in many ways."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.p = nn.Parameter(torch.linspace(0.5, 1.5, 4))


class Plain(Base):
    def forward(self, x: Tensor) -> Any:
        return self.b(torch.tanh(self.a(x))) * self.p


class Twice(Base):
    def forward(self, x: Tensor) -> Any:
        return self.a(torch.tanh(self.a(torch.relu(self.a(x))))) + self.p


class Several(Base):
    def forward(self, x: Tensor) -> Any:
        hidden = self.a(x)
        return hidden, self.b(hidden) * self.p, hidden.relu()


class Views(Base):
    def forward(self, x: Tensor) -> Any:
        hidden = self.b(torch.tanh(self.a(x))) * self.p
        return hidden.view(-1), hidden.T, hidden[:1]


class Same(Base):
    def forward(self, x: Tensor) -> Any:
        hidden = self.b(self.a(x)) * self.p
        return hidden, hidden


class Through(Base):
    def forward(self, x: Tensor) -> Any:
        return x, self.b(self.a(x)) * self.p


class Integers(Base):
    def forward(self, x: Tensor) -> Any:
        return self.b(self.a(x)) * self.p, (x > 0).long(), x > 0


class WithoutGraph(Base):
    def forward(self, x: Tensor) -> Any:
        return self.b(self.a(x)) * self.p, x.detach() * 2


class OffPath(Base):
    def forward(self, x: Tensor) -> Any:
        return self.a(x), self.b(self.p) * self.p


class Shared(Base):
    def forward(self, x: Tensor) -> Any:
        side = self.b(self.p)
        return self.a(x) + side, side, self.p


class Deaf(Base):
    def forward(self, x: Tensor) -> Any:
        return self.b(self.a(torch.ones_like(x))) * self.p


class Frozen(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.a.requires_grad_(False)


class InPlace(Base):
    def forward(self, x: Tensor) -> Any:
        return torch.relu_(self.b(torch.tanh(self.a(x))) * self.p)


class Unused(Base):
    def forward(self, x: Tensor) -> Any:
        return self.a(x)


class Recomputed(Base):
    def forward(self, x: Tensor) -> Any:
        x = checkpoint(lambda t: torch.tanh(self.a(t)), x, use_reentrant=False)
        return checkpoint(self._second, x, use_reentrant=False)

    def _second(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.b(functional.dropout(x, 0.5)) * self.p
        return dropped


KINDS = (
    Plain, Twice, Several, Views, Same, Through, Integers, WithoutGraph, OffPath, Shared, Deaf, Frozen,
    InPlace, Unused, Recomputed,
)  # fmt: skip


def total(*given: Any) -> Tensor:
    """Return a loss of all outputs that can have a gradient."""
    return torch.stack(
        [each.float().square().mean() for each in given[:-1] if each.is_floating_point()]
    ).sum()


def compute(stage: Stage, inputs: tuple[Tensor, ...], targets: Any, *, is_split: bool) -> Grads:
    """Return the gradients of inputs and parameters."""
    torch.manual_seed(7)
    leaves = tuple(each.clone().requires_grad_() if each.is_floating_point() else each for each in inputs)
    outputs, passed = stage.forward(leaves if not stage.is_first else inputs, targets)
    given = None
    if not stage.is_last:
        given = [
            torch.linspace(-1, 1, o.numel()).to(o.dtype).view_as(o) for o in outputs if o.is_floating_point()
        ]
    if is_split:
        found = stage.backward_input(passed, given)
        sent = [each.clone() for each in found]
        stage.backward_weight(passed)
        assert all(map(torch.equal, found, sent)), "a gradient changed after it was sent"
    else:
        found = stage.backward(passed, given)
    grads: Grads = {name: each.grad for name, each in stage.module.named_parameters()}
    grads |= {f"input {number}": each for number, each in enumerate(found)}
    for each in stage.module.parameters():
        each.grad = None
    return grads


def check_same(one: Grads, other: Grads) -> None:
    """Fail unless both have the same gradients, to the bit."""
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        again = other[name]
        assert (gradient is None) == (again is None), name
        assert gradient is None or again is None or torch.equal(gradient, again), name


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["plain", "bf16"])
@pytest.mark.parametrize("is_last", [False, True], ids=["middle", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_halves_make_the_whole(kind: type[Base], is_last: bool, autocast: torch.dtype | None) -> None:
    """Input and weight gradients in two pieces are those of one piece; none is missing, none is changed."""
    torch.manual_seed(0)
    loss = total if is_last else None
    stage = Stage(kind(), 1, loss=loss, scale=0.25, autocast=autocast)
    inputs = (torch.randn(3, 4),)
    whole = compute(stage, inputs, None, is_split=False)
    check_same(whole, compute(stage, inputs, None, is_split=True))
    assert whole["input 0"] is not None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_halves_make_the_whole_of_a_transformer(number: int) -> None:
    """First, middle and last stage of a small GPT: the same bits in one piece and in two."""
    torch.manual_seed(0)
    model = gpt.build(width=WIDTH, layers=3)
    stage = Stage(
        gpt.stage(model, number, 3),
        number,
        loss=gpt.loss_of if number == 2 else None,
        scale=0.5,
        autocast=None,
    )
    tokens = torch.arange(12).view(2, 6)
    inputs = tokens if number == 0 else torch.randn(2, 6, WIDTH)
    whole = compute(stage, (inputs,), tokens + 1, is_split=False)
    check_same(whole, compute(stage, (inputs,), tokens + 1, is_split=True))
    assert all(each is not None for each in whole.values())
    assert ("input 0" in whole) == (number != 0)


def test_halves_of_several_micro_batches_may_interleave() -> None:
    """The weights' gradients of a micro-batch appear in its second half and not before."""
    stage = Stage(OffPath(), 1, loss=None, scale=1.0, autocast=None)
    passed = []
    for _ in range(2):
        outputs, kept = stage.forward((torch.randn(3, 4).requires_grad_(),))
        stage.backward_input(kept, [torch.ones_like(each) for each in outputs])
        passed.append(kept)
        assert all(each.grad is None for each in stage.parameters)
    for kept in passed:
        stage.backward_weight(kept)
        assert all(each.grad is not None for each in stage.parameters)


def test_stage_of_integers_alone_passes_no_gradient_back() -> None:
    """Where nothing that came in can have a gradient, none goes back, and the weights still get theirs."""
    torch.manual_seed(0)
    stage = Stage(nn.Embedding(5, 4), 1, loss=None, scale=1.0, autocast=None)
    whole = compute(stage, (torch.arange(4),), None, is_split=False)
    check_same(whole, compute(stage, (torch.arange(4),), None, is_split=True))
    assert whole.keys() == {"weight"}


def test_loss_is_scaled_for_backward_and_told_as_it_is() -> None:
    """The loss that is told is the user's; the gradient is that of its share of the step."""
    stage = Stage(
        nn.Linear(2, 1, bias=False), 0, loss=lambda out, target: out.sum(), scale=0.125, autocast=None
    )
    outputs, passed = stage.forward((torch.ones(1, 2),), None)
    assert outputs[0].item() == pytest.approx(stage.parameters[0].sum().item())
    stage.backward(passed, None)
    assert stage.parameters[0].grad is not None
    assert stage.parameters[0].grad.tolist() == [[0.125, 0.125]]


@pytest.mark.parametrize("value", [None, {"x": 1}, (torch.ones(1), 3)])
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    """A stage hands on tensors and nothing else."""
    with pytest.raises(InputError, match="expected a tensor or a tuple of tensors"):
        as_tensors(value)


def test_loss_that_is_no_tensor_is_refused() -> None:
    """A loss that returns a plain number is named as what it is."""
    stage = Stage(nn.Linear(2, 1), 0, loss=lambda out, target: 0.5, scale=1.0, autocast=None)  # type: ignore[arg-type,return-value]
    with pytest.raises(InputError, match="loss gave float, expected a tensor of a single number"):
        stage.forward((torch.ones(1, 2),), None)
