"""A pipeline of one worker is a plain training loop, with promises that are checked."""

from __future__ import annotations

import gc
import math
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

import holdfast
from holdfast.errors import InputError
from holdfast.job import publishing
from holdfast.job.build import digest_of
from holdfast.job.observer import Observer
from pipejobs import data, make_pipeline, square_loss

STEPS = 8


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher."""
    for name in ("RANK", "WORLD_SIZE", "HOLDFAST_HUB", "HOLDFAST_RINGS"):
        monkeypatch.delenv(name, raising=False)


def model() -> nn.Module:
    """Return the whole model."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def warm_up(optimizer: Any) -> Any:
    """Return a schedule that changes the rate in every step."""
    return lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))


def plain_loop(module: nn.Module, max_norm: float | None, *, has_schedule: bool) -> list[float]:
    """Train as one would without Holdfast, and return the losses."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    schedule = warm_up(optimizer) if has_schedule else None
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        each = [square_loss(module(x), y) for x, y in (data(step, 0, number) for number in range(4))]
        loss = torch.stack(each).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        if max_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("is_staggered", [False, True])
@pytest.mark.parametrize("max_norm", [None, 3.0, 0.05])
def test_losses_and_parameters_are_those_of_a_plain_loop(
    exact: bool, is_staggered: bool, max_norm: float | None
) -> None:
    """Clipped often, seldom or never, exact or not, ahead or not: the same training, to rounding."""
    pipeline = make_pipeline(
        [model], exact=exact, max_norm=max_norm, scheduler=warm_up,
        settings=holdfast.PipelineSettings(is_staggered=is_staggered),
    )  # fmt: skip
    theirs = model()
    theirs.load_state_dict(pipeline.module.state_dict())
    expected = plain_loop(theirs, max_norm, has_schedule=True)
    assert [pipeline.step().item() for _ in range(STEPS)] == pytest.approx(expected, rel=1e-5)
    for mine, other in zip(pipeline.module.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    assert pipeline.learning_rate == pytest.approx(1e-2 / (STEPS + 1))
    pipeline.close()


def test_the_watch_is_told_what_operations_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of a stage's, which here take a hundred times as long as everything else."""
    watching = Observer(tmp_path, rank=0)
    monkeypatch.setattr(publishing, "observer", lambda: watching)

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            time.sleep(0.05)
            return x

    with make_pipeline([lambda: nn.Sequential(model(), Slow())]) as pipeline:
        pipeline.step()
        before_ns, began_ns = watching.tally.operations_ns, time.monotonic_ns()
        pipeline.step().item()
        spent_ns = watching.tally.operations_ns - before_ns
    assert 4 * 0.05e9 <= spent_ns <= time.monotonic_ns() - began_ns


def test_losses_may_be_read_late_and_in_any_order() -> None:
    """A handle keeps its number, whenever it is asked for."""
    with make_pipeline([model]) as one, make_pipeline([model]) as other:
        late = [one.step() for _ in range(4)]
        at_once = [other.step().item() for _ in range(4)]
        assert [loss.item() for loss in reversed(late)] == at_once[::-1]
        assert (f"{late[0]:.3f}", float(late[1]), late[2].step) == (f"{at_once[0]:.3f}", at_once[1], 2)


def test_evaluation_is_the_mean_loss_and_changes_nothing() -> None:
    """Dropout is off, the parameters stay, and modules that were out of training stay out of it."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 1), nn.Dropout(0.5), nn.Dropout(0.5))

    with make_pipeline([build]) as pipeline:
        pipeline.step()
        pipeline.module.get_submodule("2").eval()
        before = digest_of(pipeline.module)
        found = pipeline.evaluate(data, 5)
        linear = pipeline.module.get_submodule("0")
        losses = [square_loss(linear(x), y).item() for x, y in (data(1, 0, number) for number in range(5))]
        assert found == pytest.approx(sum(losses) / 5)
        assert digest_of(pipeline.module) == before
        assert [each.training for each in pipeline.module.children()] == [True, True, False]


def test_user_random_numbers_are_left_alone() -> None:
    """What a script draws between steps does not depend on the pipeline, nor the pipeline on it."""
    with make_pipeline([lambda: nn.Sequential(model(), nn.Dropout(0.5))]) as pipeline:
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        loss = pipeline.step().item()
        assert torch.equal(torch.rand(3), expected)
    with make_pipeline([lambda: nn.Sequential(model(), nn.Dropout(0.5))]) as pipeline:
        assert pipeline.step().item() == loss


SCHEDULES: list[Callable[[Any], Any]] = [
    warm_up,
    lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5]),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["lambda", "multi_step", "one_cycle"])
def test_checkpoint_goes_on_to_the_bit(tmp_path: Path, schedule: Callable[[Any], Any]) -> None:
    """Loaded by another pipeline, training goes on with the numbers of the one that was saved."""
    words = {"exact": True, "scheduler": schedule, "max_norm": 1.0}
    with make_pipeline([model], **words) as pipeline:
        for _ in range(3):
            pipeline.step()
        pipeline.save(tmp_path / "one")
        pipeline.save(tmp_path / "one")
        expected = [pipeline.step().item() for _ in range(4)]
        digest = digest_of(pipeline.module)
    with make_pipeline([model], **words) as pipeline:
        pipeline.load(tmp_path / "one")
        assert pipeline.step_number == 3
        assert [pipeline.step().item() for _ in range(4)] == expected
        assert digest_of(pipeline.module) == digest


def test_training_goes_on_after_a_save_that_failed(tmp_path: Path) -> None:
    """The error names the folder and the reason, the checkpoint before stays, and so do the parameters."""
    (tmp_path / "file").touch()
    with make_pipeline([model], exact=True) as pipeline:
        pipeline.step()
        pipeline.save(tmp_path / "good")
        before = digest_of(pipeline.module)
        with pytest.raises(OSError, match=r"file/x was not saved: .*Not a directory"):
            pipeline.save(tmp_path / "file" / "x")
        assert digest_of(pipeline.module) == before
        after = pipeline.step().item()
    with make_pipeline([model], exact=True) as pipeline:
        pipeline.load(tmp_path / "good")
        assert pipeline.step().item() == after


def test_step_with_a_value_that_is_not_finite_is_skipped() -> None:
    """Its loss is told, the parameters stay, and training goes on."""

    def broken(step: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = data(step, pipeline, microbatch)
        return inputs * (float("nan") if (step, microbatch) == (1, 2) else 1.0), targets

    for exact in (False, True):
        with make_pipeline([model], data=broken, exact=exact) as pipeline:
            pipeline.step().item()
            before = digest_of(pipeline.module)
            assert math.isnan(pipeline.step().item())
            assert digest_of(pipeline.module) == before
            assert math.isfinite(pipeline.step().item())
            assert digest_of(pipeline.module) != before


def test_gradient_that_grows_fast_is_summed_again() -> None:
    """A step whose gradient is a million times larger than the last is exact, and counted once."""

    def growing(step: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = data(step, pipeline, microbatch)
        return inputs * (1e4 if step == 2 else 1.0), targets * (1e4 if step == 2 else 1.0)

    def descent(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-6)

    floats, exact = (
        make_pipeline([lambda: nn.Linear(4, 1)], data=growing, exact=exact, optimizer=descent)
        for exact in (False, True)
    )
    losses = [[each.step().item() for _ in range(4)] for each in (floats, exact)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for mine, other in zip(exact.module.parameters(), floats.module.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_load_after_a_step_is_refused(tmp_path: Path) -> None:
    """A checkpoint is loaded before the first step."""
    with make_pipeline([model]) as pipeline:
        pipeline.save(tmp_path / "c")
        pipeline.step()
        with pytest.raises(InputError, match="load was called after 1 steps"):
            pipeline.load(tmp_path / "c")


def test_closed_pipeline_is_freed() -> None:
    """A script that opens one pipeline after the other keeps the memory of none."""
    references = []
    for _ in range(2):
        pipeline = make_pipeline([model])
        pipeline.step().item()
        pipeline.close()
        references.append(weakref.ref(pipeline))
        del pipeline
    gc.collect()
    assert [reference() for reference in references] == [None, None]
