"""A problem fills in what was not given and refuses, in one clear line, what cannot be."""

from __future__ import annotations

import math

import pytest

from holdfast.errors import InputError
from holdfast.plan.problem import Costs, Problem, Worker, make_speeds


def test_defaults_are_a_healthy_job_of_equal_stages() -> None:
    """What is not given is 1 for every cost and speed, no transfer time and no cap."""
    given = Problem(dp=2, pp=3, microbatches=4)
    assert given == Problem(
        dp=2,
        pp=3,
        microbatches=4,
        costs=(Costs(1, 1, 1),) * 3,
        comm=0,
        memory=None,
        state_bytes=(),
        speeds=((1, 1, 1), (1, 1, 1)),
    )
    assert [given.cap(stage) for stage in range(3)] == [8, 8, 8]
    assert " ".join(map(str, given.workers)) == "0.0 0.1 0.2 1.0 1.1 1.2"


def test_a_hit_job_knows_who_lives() -> None:
    """Dead workers are not live, slow ones are, and the healthy job is the same with neither."""
    speeds = make_speeds(3, 2, {Worker(0, 1): 0.0, Worker(2, 1): 0.01})
    assert speeds == ((1.0, 0.0), (1.0, 1.0), (1.0, 0.01))
    hit = Problem(dp=3, pp=2, microbatches=1, memory=(7, 1), comm=0.5, speeds=speeds)
    assert [hit.live(0), hit.live(1)] == [[0, 1, 2], [1, 2]]
    assert hit.speed(Worker(2, 1)) == 0.01
    assert [hit.cap(0), hit.cap(1)] == [7, 1]
    assert hit.healthy == Problem(dp=3, pp=2, microbatches=1, memory=(7, 1), comm=0.5)


def test_costs_are_read_in_the_order_of_the_command_line() -> None:
    """Costs are forward, input, weight, and one micro-batch takes their sum."""
    costs = Costs(5, 6, 4)
    assert (costs.forward, costs.input, costs.weight, costs.total) == (5, 6, 4, 15)
    assert costs.each == (5, 6, 4)


BAD_COSTS = {
    (math.nan, 1, 1): "costs are nan,1,1, expected three finite numbers, none negative",
    (1, math.inf, 1): "costs are 1,inf,1, expected three finite numbers, none negative",
    (1, 1, -0.5): "costs are 1,1,-0.5, expected three finite numbers, none negative",
    (0, 0, 0): "costs are 0,0,0, expected a stage that takes some time",
}


@pytest.mark.parametrize("costs", BAD_COSTS)
def test_costs_that_cannot_be(costs: tuple[float, float, float]) -> None:
    """A cost that is not finite or negative is refused, and so is a stage that costs nothing."""
    with pytest.raises(InputError) as caught:
        Costs(*costs)
    assert str(caught.value) == BAD_COSTS[costs]


BAD: dict[str, dict[str, object]] = {
    "dp is 0, expected 1 or more": {"dp": 0},
    "pp is -1, expected 1 or more": {"pp": -1},
    "microbatches is 0, expected 1 or more": {"microbatches": 0},
    "comm is nan, expected a finite number, not negative": {"comm": math.nan},
    "comm is inf, expected a finite number, not negative": {"comm": math.inf},
    "comm is -1, expected a finite number, not negative": {"comm": -1},
    "memory of stage 1 is 0, expected 1 micro-batch or more": {"memory": (1, 0)},
    "memory is given for 3 stages, expected 2": {"memory": (1, 1, 1)},
    "memory is given for 0 stages, expected 2": {"memory": ()},
    "costs are given for 1 stages, expected 2": {"costs": (Costs(),)},
    "state_bytes are given for 1 stages, expected 2": {"state_bytes": (1,)},
    "state_bytes are (1, -1), expected none negative": {"state_bytes": (1, -1)},
    "speeds do not form a grid of 2 pipelines by 2 stages": {"speeds": ((1, 1), (1,))},
    "worker 1.0 has speed 1.5, expected 0 (dead) to 1 (healthy)": {"speeds": ((1, 1), (1.5, 1))},
    "worker 0.1 has speed -0.1, expected 0 (dead) to 1 (healthy)": {"speeds": ((1, -0.1), (1, 1))},
    "worker 1.1 has speed nan, expected 0 (dead) to 1 (healthy)": {"speeds": ((1, 1), (1, math.nan))},
    "all 2 workers of stage 1 are dead, expected one alive": {"speeds": ((1, 0), (1, 0))},
}


@pytest.mark.parametrize("message", BAD)
def test_a_problem_that_cannot_be(message: str) -> None:
    """Each impossible value is named with what was expected."""
    with pytest.raises(InputError) as caught:
        Problem(**({"dp": 2, "pp": 2, "microbatches": 2} | BAD[message]))  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("worker", [Worker(2, 0), Worker(0, 3), Worker(-1, 0), Worker(0, -1)])
def test_a_worker_outside_the_grid(worker: Worker) -> None:
    """A worker that does not exist is named, with those that do."""
    with pytest.raises(InputError) as caught:
        make_speeds(2, 3, {worker: 0.0})
    assert str(caught.value) == f"there is no worker {worker}, expected 0.0 to 1.2 (pipeline.stage)"
