"""A probe finds what the stages hand on, and how much they keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore

from holdfast.errors import InputError
from holdfast.job.flow import Form
from holdfast.job.probe import Loader, Probed, encode, probe, shared_weights
from holdfast.job.stage import Stage
from pipejobs import data, square_loss


class Fork(nn.Module):
    """Gives several tensors of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        made = self.layer(x)
        return made.T, made.bfloat16(), made.argmax(1), made > 0, made.sum()


class Join(nn.Module):
    """Takes what ``Fork`` gives."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 1)

    def forward(self, a: Tensor, b: Tensor, index: Tensor, mask: Tensor, total: Tensor) -> Tensor:
        joined: Tensor = self.table(index) + (a.T * b.float() * mask).sum(1, keepdim=True) + total
        return joined


def run_probe(modules: list[nn.Module], *, loss: Any = square_loss) -> list[Probed]:
    """Probe all stages in turn, as their workers do."""
    store, load = HashStore(), Loader(data, torch.device("cpu"))
    found = []
    for number, module in enumerate(modules):
        is_last = number == len(modules) - 1
        stage = Stage(module, number, loss=loss if is_last else None, scale=1.0, autocast=None)
        found.append(probe(stage, load, store, step=0, pipeline=0))
    return found


def test_forms_of_all_kinds_are_passed_on() -> None:
    """Shapes and types, of views, small floats, integers, truth values and single numbers."""
    first, last = run_probe([Fork(), Join()])
    assert first.forms.incoming == (Form((3, 4), torch.float32),)
    assert first.forms.outgoing == (
        Form((2, 3), torch.float32),
        Form((3, 2), torch.bfloat16),
        Form((3,), torch.int64),
        Form((3, 2), torch.bool),
        Form((), torch.float32),
    )
    assert last.forms == (first.forms.outgoing, ())
    assert [tuple(each.shape) for each in last.sample[0]] == [form.shape for form in first.forms.outgoing]
    assert [each.requires_grad for each in last.sample[0]] == [True, True, False, False, True]


def test_misfit_is_named() -> None:
    """The line has the stage, what it was given, and what torch said."""
    with pytest.raises(
        InputError, match=r"stage 1 cannot take what stage 0 gives: float32 \(3, 2\): RuntimeErr"
    ):
        run_probe([nn.Linear(4, 2), nn.Linear(3, 1)])


def test_too_many_tensors_are_refused() -> None:
    """What does not fit into the numbering of messages is found here and not on the way."""

    class Many(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return (super().forward(x),) * 17

    with pytest.raises(InputError, match="stage 0 gives 17 tensors, expected at most 16"):
        run_probe([Many(4, 4), nn.Linear(4, 1)])


def test_stage_that_gives_no_tensor_is_named() -> None:
    """A dictionary does not travel."""

    class Named(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return {"x": super().forward(x)}

    with pytest.raises(InputError, match="stage 0: a stage gave dict, expected a tensor or a tuple"):
        run_probe([Named(4, 4), nn.Linear(4, 1)])


def test_activation_bytes_count_each_memory_once_and_no_parameter() -> None:
    """A linear layer keeps its input; the tanh behind it its own result."""
    (found,) = run_probe([nn.Sequential(nn.Linear(4, 1, bias=False))], loss=lambda out, target: out.sum())
    assert found.activation_bytes == 4 * 3 * 4
    (more,) = run_probe([nn.Sequential(nn.Linear(4, 8), nn.Tanh())], loss=lambda out, target: out.sum())
    assert more.activation_bytes == 4 * (3 * 4 + 3 * 8)


def test_form_of_no_type_is_refused() -> None:
    """What another worker says is checked: a name of torch that is no type is none."""
    store = HashStore()
    store.set("0", encode([Form((2,), torch.float32)]).decode().replace("float32", "nn"))
    stage = Stage(nn.Linear(2, 1), 1, loss=square_loss, scale=1.0, autocast=None)
    with pytest.raises(InputError, match="'nn' is no type of a tensor"):
        probe(stage, Loader(data, torch.device("cpu")), store, step=0, pipeline=0)


def test_shared_weight_is_found_across_any_stages() -> None:
    """Within a stage weights may be shared; between stages each pair is named."""
    tied = nn.Linear(2, 2)
    assert not list(shared_weights([(0, nn.Sequential(tied, tied)), (1, nn.Linear(2, 2))]))
    lines = list(shared_weights([(0, tied), (2, nn.Sequential(tied))]))
    assert [line.split(";")[0] for line in lines] == [
        "stages 0 and 2 share a weight ('weight' and '0.weight')",
        "stages 0 and 2 share a weight ('bias' and '0.bias')",
    ]


def test_targets_of_any_kind_are_handed_on() -> None:
    """Only tensors have a shape to keep; what else a loss needs is the script's own business."""
    load = Loader(lambda step, pipeline, number: (torch.ones(2), {"step": step}), torch.device("cpu"))
    assert load(0, 0, 0)[1] == {"step": 0}
    assert load(5, 1, 2)[1] == {"step": 5}
