"""What a script can get wrong ends in one line that names it, before the first step where it can."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

import holdfast
from holdfast.errors import InputError, TrainingLostError
from holdfast.job import checkpoint
from pipejobs import data, first_stage, last_stage, make_pipeline


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher."""
    for name in ("RANK", "WORLD_SIZE", "HOLDFAST_HUB", "HOLDFAST_RINGS"):
        monkeypatch.delenv(name, raising=False)


class Counter(nn.Module):
    """Replaces a buffer in every forward."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        made: Tensor = self.layer(x)
        return made


class Unseeded(nn.Module):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand(1, generator=self.generator)


def _raise() -> nn.Module:
    raise ValueError("no weights")


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "no stages": ({"stages": []}, "stages is empty, expected one builder per stage"),
    "too few workers": (
        {"stages": [first_stage, last_stage]},
        "1 workers do not make whole pipelines of 2 stages",
    ),
    "no micro-batches": ({"microbatches": 0}, "microbatches is 0, expected 1 or more"),
    "builder raises": ({"stages": [_raise]}, "the builder of stage 0 raised ValueError: no weights"),
    "builder returns nothing": ({"stages": [lambda: None]}, "builder of stage 0 .* returned NoneType"),
    "nothing to train": ({"stages": [nn.Tanh]}, "stage 0 has no parameters to train"),
    "batch norm": (
        {"stages": [lambda: nn.Sequential(last_stage(), nn.BatchNorm1d(1))]},
        "stage 0: buffer '1.num_batches_tracked' changes in forward",
    ),
    "replaced buffer": ({"stages": [Counter]}, "stage 0: buffer 'count' changes in forward"),
    "stage does not fit the data": (
        {"stages": [lambda: nn.Linear(5, 1)]},
        r"stage 0 cannot take what the data gives: float32 \(3, 4\): RuntimeError",
    ),
    "loss of many": (
        {"loss": lambda out, target: (out - target).square()},
        r"loss gave a tensor of shape \(3, 1\), expected a single number",
    ),
    "loss of no tensor": ({"loss": lambda out, target: 0.5}, "loss gave float, expected a tensor"),
    "loss of nothing": (
        {"loss": lambda out, target: out.detach().sum()},
        "loss gave a tensor without a gradient",
    ),
    "data of no pair": ({"data": lambda *which: [1, 2, 3]}, r"data\(0, 0, 0\) gave list, expected a pair"),
    "data of a dictionary": (
        {"data": lambda *which: ({"x": 1}, None)},
        r"data\(0, 0, 0\) gave inputs of type dict, expected a tensor or a tuple",
    ),
    "costs of other stages": (
        {"settings": holdfast.PipelineSettings(costs=((1.0, 1.0, 1.0),) * 2)},
        "costs are given for 2 stages, expected 1",
    ),
    "too little memory": (
        {"settings": holdfast.PipelineSettings(memory_bytes=10)},
        "memory_bytes is 10, but stage 0 needs",
    ),
    "own generator": (
        {"stages": [lambda: nn.Sequential(last_stage(), Unseeded())], "exact": True},
        "stage 0 is not exact: '1' gave another result for the same input and seed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistake_is_named_at_the_start(case: str) -> None:
    """The line says what was given, where, and what was expected."""
    words, line = CASES[case]
    with pytest.raises(InputError, match=line):
        make_pipeline(**({"stages": [last_stage]} | words))


def test_shared_weight_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in two stages is found before anybody waits for anybody."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    tied = nn.Linear(4, 4)
    with pytest.raises(InputError, match=r"stages 0 and 1 share a weight \('0.weight' and '1.weight'\)"):
        make_pipeline([lambda: nn.Sequential(tied), lambda: nn.Sequential(nn.Tanh(), tied)])


def test_workers_without_a_meeting_place_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of several workers that nobody launched does not wait for the others."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TrainingLostError, match="MASTER_ADDR and MASTER_PORT are not set"):
        make_pipeline([last_stage])


def test_other_micro_batch_is_named_with_its_step() -> None:
    """The data's promise is checked in every step."""
    pipeline = make_pipeline([last_stage], data=lambda step, *which: data(step, *which, rows=3 + step))
    pipeline.step().item()
    with pytest.raises(
        InputError, match=r"data\(1, 0, 0\) gave inputs of shape \(4, 4\).*expected .*\(3, 4\)"
    ):
        pipeline.step()


@pytest.mark.parametrize("count", [0, -1])
def test_evaluation_of_nothing_is_refused(count: int) -> None:
    """There is no mean of no losses."""
    with pytest.raises(InputError, match=f"microbatches is {count}, expected 1 or more"):
        make_pipeline([last_stage]).evaluate(data, count)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of one stage after two steps."""
    with make_pipeline([last_stage]) as pipeline:
        for _ in range(2):
            pipeline.step()
        pipeline.save(tmp_path / "saved")
    return tmp_path / "saved"


def _load(folder: Path, **words: Any) -> None:
    make_pipeline(**({"stages": [last_stage]} | words)).load(folder)


def test_missing_checkpoint_is_named(tmp_path: Path) -> None:
    """A folder that is not there holds no checkpoint."""
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'none'} holds no complete checkpoint")):
        _load(tmp_path / "none")


def test_missing_stage_is_named(saved: Path) -> None:
    """A file that is not there is named."""
    checkpoint.stage_file(saved, 0).unlink()
    with pytest.raises(InputError, match=re.escape(f"{saved / 'stage_0.pt'} cannot be read")):
        _load(saved)


def test_every_cut_is_found(saved: Path) -> None:
    """A file cut off anywhere is refused by name."""
    file = checkpoint.stage_file(saved, 0)
    whole = file.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InputError, match=re.escape(f"{file} is not as it was written")):
            _load(saved)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b'{"step": 1}', b'{"step":"x","stages":1,"exact":false}']
)
def test_description_that_is_none_is_named(saved: Path, text: bytes) -> None:
    """A description that is cut off or lacks something is refused by name."""
    (saved / checkpoint.DESCRIPTION).write_bytes(text)
    with pytest.raises(InputError, match=re.escape(str(saved / checkpoint.DESCRIPTION))):
        _load(saved)


def test_other_shape_of_the_job_is_refused(saved: Path) -> None:
    """Another number of stages, or sums of another kind, is no continuation."""
    with pytest.raises(InputError, match="holds 1 stages with exact=False, expected 1 with exact=True"):
        _load(saved, exact=True)
    fields = msgspec.json.decode((saved / checkpoint.DESCRIPTION).read_bytes())
    (saved / checkpoint.DESCRIPTION).write_bytes(msgspec.json.encode(fields | {"stages": 4}))
    with pytest.raises(InputError, match="holds 4 stages with exact=False, expected 1"):
        _load(saved)


@pytest.mark.parametrize("content", [{}, {"module": {}, "state": {}}, [1]])
def test_file_without_a_stage_is_named(saved: Path, content: Any) -> None:
    """A file that torch can read but that is no stage of a checkpoint is refused by name."""
    file = checkpoint.stage_file(saved, 0)
    torch.save(content, file)
    with pytest.raises(InputError, match=re.escape(str(file))):
        _load(saved)


def test_other_model_is_named(saved: Path) -> None:
    """Parameters of another size are refused, and the line says which."""
    with pytest.raises(InputError, match=r"stage_0\.pt does not fit stage 0: RuntimeError: .*0\.0\.weight"):
        _load(saved, stages=[lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 1)))])
