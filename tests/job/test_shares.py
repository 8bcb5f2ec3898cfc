"""Micro-batches of a script without a process group, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import holdfast
from holdfast.errors import InputError


def test_alone_it_takes_them_all() -> None:
    """Without a process group nothing is shared, and the gradient is that of the whole batch."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 1), torch.randn(4, 3)
    shares = holdfast.Shares(4)
    for number in shares:
        with shares.sync(model):
            (model(inputs[number]).square().sum() * shares.scale).backward()
    found = model.weight.grad
    model.weight.grad = None
    model(inputs).square().mean().backward()
    assert found is not None
    assert torch.allclose(found, model.weight.grad)  # type: ignore[arg-type]


def test_gradients_are_exchanged_once() -> None:
    """``no_sync`` for all but the last micro-batch."""

    class Model:
        waits = 0

        def no_sync(self) -> object:
            self.waits += 1
            return nullcontext()

    model, shares = Model(), holdfast.Shares(3)
    for _ in shares:
        with shares.sync(model):
            pass
    assert model.waits == 2


def test_no_micro_batches_are_refused() -> None:
    """The line names what was given."""
    with pytest.raises(InputError, match="microbatches is 0, expected 1 or more"):
        holdfast.Shares(0)
