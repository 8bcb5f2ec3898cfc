"""The Trainer of transformers: a loop that fetches ahead, accumulates and evaluates, as many jobs have it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from holdfast.telemetry import StepFlag
from pairs import run_ranks
from trainerjob import ACCUMULATED, BATCH, EVALUATE_EVERY, STEPS

pytestmark = pytest.mark.processes
SCRIPT = Path(__file__).parent.parent / "trainerjob.py"


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
def test_its_steps_are_ours_and_its_losses_are_as_without_us(tmp_path: Path) -> None:
    """One record per optimizer step, evaluations flagged and no step skipped, one idea of what a step is."""
    plain = run_ranks(SCRIPT, tmp_path, is_watched=False, world_size=1)
    watched = run_ranks(SCRIPT, tmp_path, world_size=1)
    assert (plain.codes, watched.codes) == ([0], [0]), watched.stderr
    assert watched.told == plain.told
    steps = watched.steps(0)
    assert len(steps) == STEPS == watched.told[0]["steps"]
    flagged = [at for at, step in enumerate(steps) if step.flags & StepFlag.EVALUATION]
    assert flagged == [at for at in range(1, STEPS) if at % EVALUATE_EVERY == 0]
    assert not any(step.flags & StepFlag.SKIPPED for step in steps)
    assert {step.cycle for step in steps} == {1}
    assert steps[STEPS // 4].work == BATCH * ACCUMULATED * 4
