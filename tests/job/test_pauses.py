"""Pauses: what is not training has its name and its length, and steps are counted right whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.telemetry import Step, StepFlag
from pairs import Run, run_ranks
from pausejob import KINDS, PAUSE_S, STEPS

pytestmark = pytest.mark.processes
SCRIPT = Path(__file__).parent.parent / "pausejob.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The job, watched."""
    run = run_ranks(SCRIPT, tmp_path_factory.mktemp("pauses"), world_size=1)
    assert (run.codes, run.stderr) == ([0], [""])
    assert run.told[0]["errors"] == 0
    return run


def _steps(run: Run, kind: str) -> list[Step]:
    ends = {"": 0, **run.told[0]["ends"]}
    names = list(ends)
    return run.steps(0)[ends[names[names.index(kind) - 1]] : ends[kind]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_an_update_or_one_that_was_skipped(run: Run, kind: str) -> None:
    """None is lost or added by evaluations, epochs, overflows, forks, threads or data loaders' processes."""
    assert len(_steps(run, kind)) == STEPS


@pytest.mark.parametrize(
    ("kind", "part", "slow"),
    [("slow_data", "data_s", [10]), ("garbage", "gc_s", [10]), ("saving", "save_s", [10, 15])],
)
def test_a_pause_is_counted_in_its_step_under_its_name(
    run: Run, kind: str, part: str, slow: list[int]
) -> None:
    """As long as it was, and no other name has it too."""
    steps = _steps(run, kind)
    # The first step has what was between the jobs.
    found = [at for at, step in enumerate(steps) if at and getattr(step, part) > 0.9 * PAUSE_S]
    assert found == slow
    for at in slow:
        step = steps[at]
        assert step.data_s + step.gc_s + step.save_s + step.wait_s <= step.duration_s


def test_saving_within_saving_counts_once(run: Run) -> None:
    """A distributed checkpoint calls torch.save; the sum is no longer than the step."""
    steps = _steps(run, "saving")
    flagged = [at for at, step in enumerate(steps) if step.flags & StepFlag.CHECKPOINT]
    assert flagged == [10, 15]
    assert steps[15].save_s <= steps[15].duration_s


def test_waiting_of_the_loop_itself_has_no_name(run: Run) -> None:
    """A sleep outside the loader is in the step's duration alone."""
    step = _steps(run, "slow_data")[15]
    assert step.duration_s > 0.9 * PAUSE_S
    assert step.data_s + step.gc_s + step.save_s + step.wait_s < 0.5 * step.duration_s


def test_work_is_what_the_training_loader_gave(run: Run) -> None:
    """Two items of eight elements; four such batches where gradients are accumulated; no evaluation's."""
    assert {step.work for step in _steps(run, "slow_data")} == {16}
    assert {step.work for step in _steps(run, "accumulation")[8:]} == {64}
    assert {step.work for step in _steps(run, "evaluation")[12:]} == {16}


def test_a_skipped_update_is_flagged(run: Run) -> None:
    """The steps that the scaler skipped, and no others."""
    skipped = [at for at, step in enumerate(_steps(run, "overflow")) if step.flags & StepFlag.SKIPPED]
    assert skipped == [12, 18]
    others = [step for kind in KINDS if kind != "overflow" for step in _steps(run, kind)]
    assert not any(step.flags & StepFlag.SKIPPED for step in others)


def test_an_evaluation_is_flagged_in_the_step_that_it_delays(run: Run) -> None:
    """The one after it, since a step ends with its update."""
    steps = _steps(run, "evaluation")
    # In the first steps a loader that is new is taken for that of an evaluation.
    assert [at for at, step in enumerate(steps) if at > 7 and step.flags & StepFlag.EVALUATION] == [8, 16]


def test_other_threads_and_their_pauses_are_not_the_training(run: Run) -> None:
    """What a thread beside it loads, saves and updates shows in no step."""
    steps = _steps(run, "beside")
    assert max(step.data_s + step.save_s for step in steps) == 0


def test_a_job_that_trains_in_a_thread_is_watched_there(tmp_path: Path) -> None:
    """Its first update shows which thread that is."""
    run = run_ranks(SCRIPT, tmp_path, ["thread"], world_size=1)
    steps = run.steps(0)
    assert (run.codes, len(steps)) == ([0], STEPS)
    assert [at for at, step in enumerate(steps) if step.data_s > 0.9 * PAUSE_S] == [10]
