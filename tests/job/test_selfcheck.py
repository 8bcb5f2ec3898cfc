"""A self check finds what gives other bits, names it, and leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from holdfast.errors import InputError
from holdfast.job.selfcheck import check_stage
from holdfast.job.stage import Stage
from pipejobs import square_loss


class Drifts(nn.Module):
    """Gives something else in every forward."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + 1e-7 * self.calls


class _Noisy(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        _Noisy.calls += 1
        return gradient + _Noisy.calls


class NoisyBackward(nn.Module):
    """Gives the same in every forward, and something else in every backward."""

    def forward(self, x: Tensor) -> Any:
        return _Noisy.apply(x)  # type: ignore[no-untyped-call]


class Lists(nn.Module):
    """Gives what is no tensor to the module around it."""

    def forward(self, x: Tensor) -> list[Any]:
        return [x, "x"]


class First(nn.Module):
    """Takes the first of a list, after dropout and with recomputation."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = Lists()
        self.layer = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self._inner, self.lists(x)[0], use_reentrant=False)

    def _inner(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.drop(self.layer(x))
        return dropped


def make(*modules: nn.Module, is_last: bool = False) -> Stage:
    """Return a stage of a layer and these modules."""
    whole = nn.Sequential(nn.Linear(4, 4), *modules)
    return Stage(whole, 3, loss=square_loss if is_last else None, scale=1.0, autocast=None)


def check(stage: Stage) -> None:
    """Check it on an input."""
    check_stage(stage, (torch.ones(2, 4).requires_grad_(),), torch.zeros(2, 4))


@pytest.mark.parametrize("is_last", [False, True])
def test_dropout_and_recomputation_are_exact(is_last: bool) -> None:
    """What is seeded passes, and neither gradients nor random numbers are left changed."""
    stage = make(First(), nn.Dropout(0.3), is_last=is_last)
    torch.manual_seed(1)
    before = torch.default_generator.get_state()
    check(stage)
    assert torch.equal(torch.default_generator.get_state(), before)
    assert all(parameter.grad is None for parameter in stage.parameters)


def test_module_that_drifts_is_named() -> None:
    """The innermost module that gave something else is the one in the line."""
    with pytest.raises(
        InputError, match=r"stage 3 is not exact: '1\.1' gave another result .* computed again"
    ):
        check(make(nn.Sequential(nn.Tanh(), Drifts()), nn.Tanh()))


def test_backward_that_drifts_is_named_by_its_parameter() -> None:
    """A gradient that is another one names the first parameter that has it."""
    with pytest.raises(
        InputError, match=r"stage 3 is not exact: the gradient of '0\.weight' was another one"
    ):
        check(make(NoisyBackward()))


def test_not_a_number_equals_itself() -> None:
    """A stage that gives no numbers gives them again: that is exact."""
    stage = make()
    with torch.no_grad():
        stage.parameters[0].fill_(float("nan"))
    check(stage)
