"""A shadow gives back every bit of a stage's state, whatever the optimizer keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from holdfast.job.shadow import Shadow

Parameters = list[nn.Parameter]


class Lazy(torch.optim.Optimizer):
    """Keeps what other optimizers do not: other shapes, numbers, lists, and more from step 2 on."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:
        """Factor the second moment into rows and columns."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter, group["lr"])

    @torch.no_grad()
    def _update(self, parameter: Tensor, lr: float) -> None:
        state = self.state[parameter]
        state["count"] = state.get("count", 0) + 1
        state["history"] = [*state.get("history", []), float(parameter.sum())]
        square = parameter.grad.square() + 1e-8  # type: ignore[union-attr]
        state["row"] = 0.9 * state.get("row", 0.0) + square.mean(-1)
        if state["count"] > 1:
            state["second"] = square.sum()
        parameter -= lr * parameter.grad / state["row"].mean().sqrt()  # type: ignore[operator]


MAKERS: dict[str, Callable[[Parameters], Any]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
    "plain_sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
    "groups": lambda parameters: torch.optim.AdamW([{"params": [p], "lr": 0.01} for p in parameters]),
    "lazy": Lazy,
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "none": lambda optimizer: None,
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "one_cycle": lambda optimizer: lr_scheduler.OneCycleLR(
        optimizer, 0.1, total_steps=20, cycle_momentum=False
    ),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.9)],
        milestones=[2],
    ),
}


class Scene:
    """Parameters, an optimizer, a schedule, and updates whose gradients depend on the step alone."""

    def __init__(self, maker: str, schedule: str = "none") -> None:
        generator = torch.Generator().manual_seed(1)
        self.parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 2), (4,))]
        self.optimizer = MAKERS[maker](self.parameters)
        self.schedule = SCHEDULES[schedule](self.optimizer)
        self.shadow = Shadow(self.parameters, self.optimizer, self.schedule)

    def step(self, number: int) -> None:
        """Make an update."""
        generator = torch.Generator().manual_seed(number)
        for parameter in self.parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def look(self) -> Any:
        """Return everything there is, copied."""
        schedule = self.schedule.state_dict() if self.schedule is not None else None
        return copy.deepcopy(
            ([each.detach() for each in self.parameters], self.optimizer.state_dict(), schedule)
        )


def same(one: Any, other: Any) -> bool:
    """Compare values with tensors in them, to the bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("maker", MAKERS)
def test_state_is_what_it_was(maker: str, steps: int) -> None:
    """After any number of steps, also none: an update that is taken back leaves no trace."""
    scene = Scene(maker)
    for number in range(steps):
        scene.step(number)
    before = scene.look()
    scene.shadow.take()
    scene.step(99)
    assert not same(scene.look(), before)
    scene.shadow.restore()
    assert same(scene.look(), before)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("maker", ["adamw", "sgd", "lazy"])
def test_training_goes_on_as_if_nothing_had_been_taken_back(maker: str, schedule: str) -> None:
    """Updates taken back and made again, several times: the bits of a run without that."""
    plain, scene = Scene(maker, schedule), Scene(maker, schedule)
    for number in range(6):
        plain.step(number)
        for wrong in range(number % 3):
            scene.shadow.take()
            scene.step(50 + wrong)
            scene.shadow.restore()
        scene.shadow.take()
        scene.step(number)
    assert same(scene.look(), plain.look())


def test_copy_is_taken_into_the_same_memory() -> None:
    """From the second step on no memory is asked for, and the size is that of parameters and moments."""
    scene = Scene("adamw")
    scene.step(0)
    scene.shadow.take()
    places = [each.data_ptr() for each in scene.shadow._copies]
    scene.step(1)
    scene.shadow.take()
    assert [each.data_ptr() for each in scene.shadow._copies] == places
    assert scene.shadow.size_bytes == 4 * (10 + 3 * 10 + 2)
