"""Real workers die at every point of a step, and the others end with the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.lab.fork import Lab
from pipejobs import Ran, check_survived, open_lab, run, train

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab whose workers find the jobs of the tests."""
    with open_lab() as lab:
        yield lab


@pytest.fixture(scope="module")
def grid(lab: Lab) -> Ran:
    """Two pipelines of two stages that nothing happened to."""
    ran = train(lab, 2, 2)
    assert ran.result.exit_codes == [0] * 4, ran.story
    assert len(ran.losses) == 6
    return ran


@pytest.mark.parametrize(
    "death",
    [
        "2:forward:2:2",
        "1:input:2:2",
        "3:weight:0:1",
        "0:done:2:4",
        "0:send:2:3",
        "1:receive:3:2",
        "2:reduction:2:1",
        "3:barrier:2:1",
        "0:step:3:1",
    ],
)
def test_death_at_a_point_changes_nothing(lab: Lab, grid: Ran, death: str) -> None:
    """Whoever dies wherever in a step, the losses and parameters are those of the run without it."""
    check_survived(train(lab, 2, 2, die=[death]), grid, pp=2, dead=[int(death[0])])


def test_death_in_a_whole_backward_changes_nothing(lab: Lab, grid: Ran) -> None:
    """With backward in one piece: other operations, a death in one of them, the same bits."""
    ran = train(lab, 2, 2, "--schedule", "1f1b", die=["3:backward:2:2"])
    check_survived(ran, grid, pp=2, dead=[3])


def test_death_in_synchronous_training_changes_nothing(lab: Lab, grid: Ran) -> None:
    """Without updates ahead of their verdict: the same bits, before a death and after it."""
    check_survived(train(lab, 2, 2, "--synchronous", die=["1:step:2:1"]), grid, pp=2, dead=[1])


def test_one_death_per_stage_at_once(lab: Lab, grid: Ran) -> None:
    """One worker of each stage dies in the same step, of different pipelines; two are enough."""
    ran = train(lab, 2, 2, die=["0:barrier:2:1", "3:weight:2:1"])
    check_survived(ran, grid, pp=2, dead=[0, 3])


def test_death_during_a_recovery(lab: Lab, grid: Ran) -> None:
    """A worker that dies while the others agree on where to go on is left behind too."""
    ran = train(lab, 2, 2, die=["2:send:2:1", "1:regroup:0:2"])
    check_survived(ran, grid, pp=2, dead=[1, 2])


def test_two_of_three_die_at_once(lab: Lab) -> None:
    """Of three workers without stages one is left, and does what all three would have done."""
    like = train(lab, 3, 1)
    ran = train(lab, 3, 1, die=["0:weight:2:2", "2:reduction:2:1"])
    check_survived(ran, like, pp=1, dead=[0, 2])


def test_plain_data_parallelism_survives(lab: Lab) -> None:
    """Four workers with the whole model each, one of which dies."""
    check_survived(train(lab, 4, 1, die=["3:step:3:1"]), train(lab, 4, 1), pp=1, dead=[3])


def test_clipped_steps_survive(lab: Lab) -> None:
    """Steps whose norm is over the limit are clipped alike, with or without a death before the verdict."""
    like = train(lab, 2, 2, "--max-norm", "0.5")
    loose = train(lab, 2, 2, "--max-norm", "1000")
    assert like.digests != loose.digests, "nothing was clipped"
    for death in ("1:step:1:1", "2:barrier:2:1"):
        ran = train(lab, 2, 2, "--max-norm", "0.5", die=[death])
        check_survived(ran, like, pp=2, dead=[int(death[0])])


def test_tensors_that_skip_a_stage_survive(lab: Lab) -> None:
    """Integers, inputs handed on as they are, and weights off the path: the same bits after a death."""
    like = run(lab, "pipescenes", 6, "skip", "zero_bubble", "exact")
    ran = run(lab, "pipescenes", 6, "skip", "zero_bubble", "exact", "4:send:2:2")
    check_survived(ran, like, pp=3, dead=[4])


def test_no_peer_of_a_stage_is_left(lab: Lab) -> None:
    """When all workers of a stage are dead the others end, and say what is lost."""
    ran = train(lab, 2, 2, die=["1:forward:2:1", "3:forward:2:1"])
    assert ran.result.exit_codes == [1, -9, 1, -9], ran.story
    line = "every worker of stage 1 is gone (0.1, 1.1), and with them their parameters: training ended after"
    assert ran.stops[0].startswith(line)
    assert line in ran.result.logs[0]
    assert line in ran.result.logs[2]


def test_nothing_survives_without_a_second_pipeline(lab: Lab) -> None:
    """With one pipeline a death ends the training, with a line that says so."""
    ran = train(lab, 1, 2, die=["0:send:2:1"])
    assert ran.result.exit_codes == [-9, 1], ran.story
    assert "TrainingLostError: every worker of stage 0 is gone (0.0)" in ran.result.logs[1]


def test_nothing_survives_without_a_hub(lab: Lab) -> None:
    """Under another launcher the first death ends the training, with a line that says what would help."""
    ran = run(lab, "pipescenes", 4, "half", "3:weight:1:1", has_hub=False)
    assert ran.result.exit_codes == [1, 1, 1, -9], ran.story
    for log in ran.result.logs[:3]:
        assert "nobody but `holdfast run` lets the others go on without it" in log
