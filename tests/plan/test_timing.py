"""Times by hand, and for any schedule: nothing starts too early, and nothing could start earlier."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.plan.ops import Op, parse_op, parse_schedule
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.timing import Timed, duration, peak_of, time_schedule
from holdfast.plan.validate import validate
from problems import problems, random_schedule
from schedules import make_problem

UNEVEN = (Costs(1, 2, 3), Costs(2, 1, 0.5))


def _times(problem: Problem, text: str, releases: tuple[float, ...] = ()) -> dict[str, tuple[float, float]]:
    timed = time_schedule(problem, parse_schedule(text), releases)
    return {f"{worker} {op}": (start, end) for worker, op, start, end in timed.rows()}


def _one(first: str, second: str) -> str:
    return f"dp 1 pp 2 microbatches 1\n0.0: {first}\n0.1: {second}\n"


def test_a_split_backward_lets_the_gradient_go_after_its_input_part() -> None:
    """Each transfer takes comm, and the weight part delays nobody upstream."""
    problem = make_problem(1, 2, 1, costs=UNEVEN, comm=0.5)
    assert _times(problem, _one("0F0.0 0I0.0 0W0.0", "1F0.0 1I0.0 1W0.0")) == {
        "0.0 0F0.0": (0, 1),
        "0.0 0I0.0": (5, 7),
        "0.0 0W0.0": (7, 10),
        "0.1 1F0.0": (1.5, 3.5),
        "0.1 1I0.0": (3.5, 4.5),
        "0.1 1W0.0": (4.5, 5),
    }


def test_a_whole_backward_keeps_its_gradient_until_its_end() -> None:
    """With B the stage before waits for the weights too."""
    problem = make_problem(1, 2, 1, costs=UNEVEN, comm=0.5)
    assert _times(problem, _one("0F0.0 0B0.0", "1F0.0 1B0.0")) == {
        "0.0 0F0.0": (0, 1),
        "0.0 0B0.0": (5.5, 10.5),
        "0.1 1F0.0": (1.5, 3.5),
        "0.1 1B0.0": (3.5, 5),
    }


def test_a_slow_worker_takes_its_cost_over_its_speed() -> None:
    """At a quarter of the speed everything takes four times as long, transfers do not."""
    problem = make_problem(1, 2, 1, costs=UNEVEN, comm=0.5, slow="0.1=0.25")
    times = _times(problem, _one("0F0.0 0B0.0", "1F0.0 1I0.0 1W0.0"))
    assert times["0.1 1F0.0"] == (1.5, 9.5)
    assert times["0.1 1I0.0"] == (9.5, 13.5)
    assert times["0.0 0B0.0"] == (14.0, 19.0)
    assert duration(problem, Op("B", 0, 0, 1), Worker(0, 1)) == 6


def test_a_rerouted_microbatch_visits_another_pipeline_for_one_stage() -> None:
    """What a peer does for a dead worker comes from and goes back to the micro-batch's own pipeline."""
    problem = make_problem(2, 2, 1, comm=0.25, dead="0.1")
    text = """dp 2 pp 2 microbatches 1
        0.0: 0F0.0 0B0.0
        0.1: -
        1.0: 0F1.0 0B1.0
        1.1: 1F1.0 1F0.0 1I0.0 1I1.0 1W1.0 1W0.0"""
    timed = time_schedule(problem, parse_schedule(text))
    assert dict(zip(timed.schedule.workers, zip(timed.starts, timed.ends, strict=True), strict=True)) == {
        Worker(0, 0): ((0, 4.5), (1, 6.5)),
        Worker(0, 1): ((), ()),
        Worker(1, 0): ((0, 5.5), (1, 7.5)),
        Worker(1, 1): ((1.25, 2.25, 3.25, 4.25, 5.25, 6.25), (2.25, 3.25, 4.25, 5.25, 6.25, 7.25)),
    }
    assert timed.spans == (7.5, 6.0)
    assert (timed.period, timed.makespan) == (7.5, 7.5)
    assert timed.peak_in_flight == {Worker(0, 0): 1, Worker(0, 1): 0, Worker(1, 0): 1, Worker(1, 1): 2}


def test_makespan_and_period_count_from_the_first_start() -> None:
    """A stage that is released later shortens its own span and the makespan, if nothing starts before."""
    problem = make_problem(1, 2, 1)
    timed = time_schedule(
        problem, parse_schedule(_one("0F0.0 0I0.0 0W0.0", "1F0.0 1I0.0 1W0.0")), (10.0, 12.0)
    )
    assert timed.starts == ((10.0, 14.0, 15.0), (12.0, 13.0, 14.0))
    assert (timed.makespan, timed.spans) == (6.0, (6.0, 3.0))


CIRCLES = {
    # Each stage wants first what the other would send second.
    "dp 1 pp 2 microbatches 2\n0.0: 0F0.0 0B0.0 0F0.1 0B0.1\n0.1: 1F0.1 1B0.1 1F0.0 1B0.0": (
        "the schedule deadlocks: 0.0 waits with 0B0.0 for 0.1, 0.1 waits with 1F0.1 for 0.0"
    ),
    # A backward before its own forward is a circle of one.
    "dp 1 pp 1 microbatches 1\n0.0: 0B0.0 0F0.0": ("the schedule deadlocks: 0.0 waits with 0B0.0 for 0.0"),
    # The worker that leads to the circle is not part of it.
    "dp 2 pp 2 microbatches 1\n0.0: 0F0.0 0B0.0\n0.1: 1F1.0 1B1.0 1F0.0 1B0.0\n1.0: 0B1.0 0F1.0\n1.1: -": (
        "the schedule deadlocks: 0.1 waits with 1F1.0 for 1.0, 1.0 waits with 0B1.0 for 0.1"
    ),
    "dp 1 pp 2 microbatches 1\n0.0: 0F0.0 0B0.0\n0.1: 1F0.0": (
        "the schedule deadlocks: 0.0 waits with 0B0.0 for what nobody makes"
    ),
}


@pytest.mark.parametrize("text", CIRCLES)
def test_who_waits_for_whom_is_told(text: str) -> None:
    """A schedule that waits in a circle, or for what nobody makes, is refused with the whole chain."""
    schedule = parse_schedule(text)
    problem = make_problem(schedule.dp, schedule.pp, schedule.microbatches)
    with pytest.raises(InputError) as caught:
        time_schedule(problem, schedule)
    assert str(caught.value) == CIRCLES[text]


@given(problems(), st.randoms(use_true_random=False))
def test_times_are_valid_and_the_earliest(problem: Problem, rng: random.Random) -> None:
    """Every operation starts at 0, at the end of the one before, or when what it needs is there."""
    schedule = random_schedule(problem, rng)
    timed = time_schedule(problem, schedule)
    assert validate(problem, timed) == []
    ends = {op: end for _, op, _, end in timed.rows()}
    for starts, order in zip(timed.starts, schedule.orders, strict=True):
        free = 0.0
        for start, op in zip(starts, order, strict=True):
            assert start == max(free, _there(problem, op, ends))
            free = ends[op]


@given(problems(), st.randoms(use_true_random=False))
def test_figures_follow_their_definitions(problem: Problem, rng: random.Random) -> None:
    """Makespan, period and peaks, computed again from the rows alone."""
    timed = time_schedule(problem, random_schedule(problem, rng))
    rows = timed.rows()
    assert timed.makespan == max(row[3] for row in rows) - min(row[2] for row in rows)
    spans = []
    for stage in range(problem.pp):
        there = [row for row in rows if row[0].stage == stage]
        spans.append(max(row[3] for row in there) - min(row[2] for row in there))
    assert timed.spans == tuple(spans)
    assert timed.period == max(spans)
    assert timed.peak_in_flight == {worker: _peak(timed, worker) for worker in problem.workers}


def test_peaks_count_from_the_start_of_forward_to_the_end_of_backward() -> None:
    """I frees nothing; W and B do."""
    order = "0F0.0 0F0.1 0I0.0 0F0.2 0W0.0 0B0.1 0F0.3"
    assert peak_of(list(map(parse_op, order.split()))) == 3
    assert peak_of([]) == 0


def _there(problem: Problem, op: Op, ends: dict[Op, float]) -> float:
    """When what an operation needs has arrived, by the rules of the text alone."""
    if op.kind == "F":
        return ends[op._replace(stage=op.stage - 1)] + problem.comm if op.stage else 0.0
    if op.kind == "W":
        return ends[op._replace(kind="I")]
    if op.stage == problem.pp - 1:
        return ends[op._replace(kind="F")]
    after = [op._replace(kind=kind, stage=op.stage + 1) for kind in "IB"]
    return next(ends[each] for each in after if each in ends) + problem.comm


def _peak(timed: Timed, worker: Worker) -> int:
    """The most held at once, by the sequence of what takes and what frees."""
    changes = [{"F": 1, "I": 0, "W": -1, "B": -1}[op.kind] for op in timed.schedule.order(worker)]
    return max((sum(changes[: n + 1]) for n in range(len(changes))), default=0)
