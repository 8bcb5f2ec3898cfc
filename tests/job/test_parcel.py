"""Parcels: trees of values and tensors come out as they went in, and nothing else goes in."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from holdfast.errors import InputError
from holdfast.job.parcel import decode_forms, encode_forms, form_of, memory_of, pack, unpack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(-(2**63), 2**63 - 1), inner)
    ),
    max_leaves=20,
)


def there_and_back(value: Any) -> Any:
    packed = pack(value)
    return unpack(packed.tree, [tensor.clone() for tensor in packed.tensors])


@given(PLAIN)
def test_plain_values_come_out_as_they_went_in(value: Any) -> None:
    """With the types of lists, tuples and numbers."""
    assert repr(there_and_back(value)) == repr(value)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), Counter({3: 2}), {"a": (1, [2, (3,)])}])
def test_what_schedules_and_optimizers_hold_travels(value: Any) -> None:
    """Counters of milestones, betas, rates that are not finite."""
    found = there_and_back(value)
    assert type(found) is type(value)
    assert repr(found) == repr(value)


def test_an_optimizers_state_is_the_same_after_it() -> None:
    """AdamW after two steps: the copy goes on as the original does, to the last bit."""
    made = [_trained(seed) for seed in (1, 2)]
    (model, optimizer), (other, other_optimizer) = made
    other.load_state_dict(there_and_back(OrderedDict(model.state_dict())))
    other_optimizer.load_state_dict(there_and_back(optimizer.state_dict()))
    for each, its in made:
        _step(each, its, seed=5)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))


def _trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(2):
        _step(model, optimizer, seed=seed + step)
    return model, optimizer


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("value", [{"a": object()}, [1, {2, 3}], {(1, 2): 3}, nn.Linear(1, 1), print])
def test_what_is_not_plain_is_refused(value: Any) -> None:
    """By the place where it is."""
    with pytest.raises(InputError, match="of type"):
        pack(value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).view(2, 3),
        torch.tensor(3),
        torch.zeros(0, 4),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.nn.Parameter(torch.ones(2)),
    ],
)
def test_bytes_of_tensors_make_the_same_tensors(tensor: torch.Tensor) -> None:
    """Of any type and shape, also of none."""
    (form,) = decode_forms(encode_forms([form_of(tensor)]))
    again = torch.empty(form.shape, dtype=form.dtype)
    memory_of(again)[:] = memory_of(tensor.contiguous())
    assert form.size_bytes == len(memory_of(tensor))
    assert torch.equal(again, tensor)


@pytest.mark.parametrize("row", [([2], "Tensor"), ([2], "no"), ([-1], "float32"), ([2], "nn")])
def test_forms_that_are_none_are_refused(row: Any) -> None:
    """Whatever a stranger writes."""
    with pytest.raises(InputError):
        decode_forms([row])
