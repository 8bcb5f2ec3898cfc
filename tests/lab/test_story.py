"""The figures of a job that lost a worker, from its steps, its events and its output alone."""

from __future__ import annotations

import pytest

from helpers import STAMP, make_death
from holdfast.lab.story import Outcome, find_difference, plan_ratio, read_outcome, tell, witnessed
from holdfast.membership import Needs
from holdfast.plan.planner import make_plan
from holdfast.telemetry import Step
from holdfast.values import Record, WorkerDied
from schedules import make_problem

NEEDS = Needs(dp=3, pp=2, microbatches=4)
DEATH = make_death(rank=3, seen_s=2.15)
DIED = [Record(stamp=STAMP, event=WorkerDied(death=DEATH))]


def _steps(rank: int, *durations_s: float, began_s: float = 1.0) -> list[Step]:
    ends_s = [began_s + sum(durations_s[: number + 1]) for number in range(len(durations_s))]
    return [
        Step(rank=rank, step=number, ended_s=end_s, duration_s=duration_s)
        for number, (end_s, duration_s) in enumerate(zip(ends_s, durations_s, strict=True))
    ]


BROKEN = [
    *_steps(0, 0, 0.3, 0.3, 0.2, 0.1, 0.1, 0.4, 0.15, 0.15, 0.15),
    *_steps(3, 0, 0.3, 0.3, 0.2, 0.1, 0.12),
]


def test_a_death_costs_what_its_step_took_longer_than_those_after_it() -> None:
    """The launcher may see it later than the others: the step that it cut short is the longest since."""
    story = tell(BROKEN, DIED, NEEDS)
    [recovery] = story.recoveries
    assert (recovery.rank, recovery.worker) == (3, "1.1")
    assert recovery.pause_s == pytest.approx(0.4 - 0.15)
    assert (recovery.died_s, recovery.resumed_s) == pytest.approx((2.02, 2.4))


def test_step_times_are_medians_before_and_after() -> None:
    """The first steps of all, and the one that was cut short, belong to neither."""
    story = tell(BROKEN, DIED, NEEDS)
    assert (story.before_s, story.after_s) == pytest.approx((0.1, 0.15))
    assert story.ratio == pytest.approx(1.5)


def test_the_witness_is_the_first_rank_that_lived() -> None:
    """Rank 0 may be the one that died."""
    steps = [*_steps(0, 0, 0.1), *_steps(2, 0, 0.2, 0.3), *_steps(1, 0, 0.4)]
    assert {step.rank for step in witnessed(steps, [0])} == {1}
    assert [step.duration_s for step in witnessed(steps, [0, 1])] == [0.2, 0.3]
    assert witnessed(steps, [0, 1, 2]) == []


def test_a_run_without_a_death_has_no_recovery() -> None:
    """And one that never trained has no figures at all."""
    story = tell(_steps(0, 0, 0.3, 0.3, 0.3, 0.1, 0.1), [], NEEDS)
    assert story.before_s == pytest.approx(0.1)
    assert (story.after_s, story.recoveries) == (None, [])
    assert (story.planned_ratio, story.ratio) == (1.0, None)
    empty = tell([], DIED, NEEDS)
    assert (empty.before_s, empty.after_s, empty.recoveries) == (None, None, [])


def test_the_planned_ratio_is_that_of_two_plans() -> None:
    """In small jobs, the planner finds the best of both."""
    broken, whole = (make_plan(make_problem(3, 2, 4, dead=dead)).period for dead in ("1.1", ""))
    assert plan_ratio(NEEDS, [3]) == broken / whole == 1.5
    assert plan_ratio(NEEDS, []) == 1.0


# --- the same to the last bit -----------------------------------------------------------------

A, B = "a" * 64, "b" * 64
LOGS = {
    0: f"emulated accelerator\nstep 0 loss 4.5\nstep 1 loss 0.1\nrank 0 ends [1.5]\nrank 0 digest {A}\n",
    1: f"rank 1 pauses [0.5]\nrank 1 digest {B}\n",
    3: f"rank 3 digest {B}\n",
}
WHOLE = Outcome(losses={0: "4.5", 1: "0.1"}, digests={0: A, 1: B, 3: B})


def test_losses_and_digests_are_read_from_the_output() -> None:
    """With every digit that was printed; the dead have told nothing."""
    assert read_outcome(LOGS) == WHOLE
    assert read_outcome({3: "step 0 lo"}) == Outcome(losses={}, digests={})


def test_two_runs_agree_only_if_every_loss_and_every_digest_does() -> None:
    """Of the dead nothing is expected; of all others everything."""
    broken = Outcome(losses=WHOLE.losses, digests={0: A, 1: B})
    assert find_difference(broken, WHOLE, steps=2, dead=[3]) is None


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Outcome(losses={0: "4.5"}, digests={0: A, 1: B}), "the loss of step 1 is None, without"),
        (Outcome(losses={0: "4.5", 1: "0.10000000000000002"}, digests={0: A, 1: B}), "the loss of step 1"),
        (Outcome(losses=WHOLE.losses, digests={0: A}), "the parameters of rank 1"),
        (Outcome(losses=WHOLE.losses, digests={0: A, 1: A}), "the parameters of rank 1"),
    ],
)
def test_the_first_difference_is_named(broken: Outcome, words: str) -> None:
    """Down to the last digit, and what is missing differs too."""
    assert words in (find_difference(broken, WHOLE, steps=2, dead=[3]) or "")


def test_nothing_agrees_with_a_run_that_told_nothing() -> None:
    """What was not compared is not called the same."""
    nothing = Outcome(losses={}, digests={})
    assert find_difference(nothing, nothing, steps=1, dead=[]) is not None
    assert find_difference(nothing, nothing, steps=0, dead=[]) is not None
