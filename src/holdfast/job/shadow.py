"""One version of a stage's state, to go back to: parameters, optimizer, learning-rate schedule."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Key = tuple[int, str]
"""Index of the parameter and name of the optimizer's value for it."""


class Shadow:
    """A copy that is taken over and over into the same memory."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: Any, scheduler: Any | None) -> None:
        self._parameters = parameters
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._copies: list[Tensor] = []
        self._keys: list[Key] = []
        self._numbers: dict[Key, Any] = {}
        self._groups: list[dict[str, Any]] = []
        self._schedule: Any = None

    @property
    def size_bytes(self) -> int:
        """What the copy takes."""
        return sum(each.numel() * each.element_size() for each in self._copies)

    @torch.no_grad()
    def take(self) -> None:
        """Copy the state as it is."""
        tensors, self._keys, self._numbers = self._look()
        if [(each.shape, each.dtype) for each in tensors] != [(c.shape, c.dtype) for c in self._copies]:
            self._copies = [torch.empty_like(each) for each in tensors]
        if tensors:
            torch._foreach_copy_(self._copies, tensors)
        self._groups = [_settings(group) for group in self._optimizer.param_groups]
        self._schedule = copy.deepcopy(self._scheduler.state_dict()) if self._scheduler else None

    @torch.no_grad()
    def restore(self) -> None:
        """Make the state what it was when it was copied."""
        count = len(self._parameters)
        torch._foreach_copy_([each.data for each in self._parameters], self._copies[:count])
        self._restore_optimizer(dict(zip(self._keys, self._copies[count:], strict=True)))
        for group, settings in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.update(copy.deepcopy(settings))
        if self._scheduler is not None:
            self._scheduler.load_state_dict(copy.deepcopy(self._schedule))

    def _restore_optimizer(self, copies: dict[Key, Tensor]) -> None:
        names: dict[int, list[str]] = {}
        for index, name in [*copies, *self._numbers]:
            names.setdefault(index, []).append(name)
        for index, parameter in enumerate(self._parameters):
            if index not in names:
                self._optimizer.state.pop(parameter, None)
                continue
            values = self._optimizer.state[parameter]
            for later in [name for name in values if name not in names[index]]:
                del values[later]
            for name in names[index]:
                if (index, name) in self._numbers:
                    values[name] = copy.deepcopy(self._numbers[index, name])
                elif isinstance(values.get(name), Tensor):
                    values[name].copy_(copies[index, name])
                else:
                    values[name] = copies[index, name].clone()

    def _look(self) -> tuple[list[Tensor], list[Key], dict[Key, Any]]:
        tensors: list[Tensor] = [each.data for each in self._parameters]
        keys: list[Key] = []
        numbers: dict[Key, Any] = {}
        for index, parameter in enumerate(self._parameters):
            for name, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors.append(value)
                    keys.append((index, name))
                else:
                    numbers[index, name] = copy.deepcopy(value)
        return tensors, keys, numbers


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
