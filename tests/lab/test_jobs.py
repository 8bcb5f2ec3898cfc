"""The demo jobs train."""

from __future__ import annotations

import math
import re

import pytest

from holdfast.lab.fork import Job, Lab, Result

pytestmark = pytest.mark.processes
JOBS = ("ddp", "fsdp", "pipeline", "dataparallel", "exchange")


def _run(lab: Lab, job: str, *args: str, ranks: int = 2) -> Result:
    arguments = ["--steps", "12", "--step-every", "1", *args]
    return lab.run(Job(module=f"holdfast.lab.jobs.{job}", ranks=ranks, args=arguments))


def _losses(result: Result) -> list[float]:
    assert result.exit_codes == [0] * len(result.exit_codes), result.logs
    return [float(loss) for loss in re.findall(r"^step \d+ loss (\S+) \d+ ms$", result.logs[0], re.MULTILINE)]


@pytest.mark.parametrize("job", JOBS)
def test_loss_is_finite_falls_and_comes_from_the_seed(lab: Lab, job: str) -> None:
    """A job learns, and the same seed gives the same losses again."""
    losses = _losses(_run(lab, job))
    assert len(losses) == 12
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])
    assert _losses(_run(lab, job)) == losses


def test_seed_matters(lab: Lab) -> None:
    """Another seed is another run."""
    assert _losses(_run(lab, "ddp", "--seed", "1")) != _losses(_run(lab, "ddp"))


@pytest.mark.parametrize("job", ["fsdp", "dataparallel"])
def test_ways_to_share_the_data_agree(lab: Lab, job: str) -> None:
    """However gradients are averaged, it is the same training."""
    assert _losses(_run(lab, job)) == pytest.approx(_losses(_run(lab, "ddp")), abs=1e-3)


def test_pipeline_of_one_stage_agrees_with_three(lab: Lab) -> None:
    """Where the model is cut does not matter to the loss."""
    one, three = (_losses(_run(lab, "pipeline", "--layers", "3", ranks=ranks)) for ranks in (1, 3))
    assert one == pytest.approx(three, abs=1e-3)


def test_emulated_device_is_named_in_the_output(lab: Lab) -> None:
    """Nobody can take emulated timing for real."""
    result = _run(lab, "dataparallel", "--device", "emulated", "--op-ms", "1")
    assert result.logs[0].startswith("emulated accelerator: 1 ms per block")
