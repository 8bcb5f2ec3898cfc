"""Who hangs: the rules one by one, and in any execution of any schedule the one that stopped and no other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.detect.clocks import Clocks, Sight
from holdfast.detect.hang import Hung, Limits, Seen, find_hung, find_suspects, limits_of
from holdfast.guard.schedules import find_makers
from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Problem, Worker
from holdfast.plan.timing import duration, made_by, needed_by, time_schedule
from holdfast.telemetry import Phase, Status
from problems import problems, random_schedule

LIMITS = Limits(timeout_s=2.0, stop_s=0.2)
MAKERS = {7: {(1, 0): (0, 0), (0, 1): (1, 1)}}
"""Two stages: rank 1 takes what the first op of rank 0 makes, and rank 0 what the second of rank 1 makes."""
EVERY_S = 0.05


def _status(rank: int, phase: Phase, op: int = 0, **fields: Any) -> Status:
    usual: dict[str, Any] = {"pid": 100 + rank, "generation": 7, "step": 4, "since_ns": 0}
    return Status(rank=rank, phase=phase, op=op, **(usual | fields))


def _seen(
    rank: int, phase: Phase, op: int = 0, *, state: str = "S", waited_s: float = 9.0, **fields: Any
) -> Seen:
    clocks = {"waited_s": waited_s, "stopped_s": 9.0 if state == "T" else 0.0}
    return Seen(status=_status(rank, phase, op, **fields), stage=rank, state=state, limits=LIMITS, **clocks)


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("durations_s", "limits"),
    [
        ([], Limits(timeout_s=None, stop_s=5.0)),
        ([9.0, 9.0], Limits(timeout_s=None, stop_s=5.0)),
        ([0.01, 0.02, 0.03], Limits(timeout_s=2.0, stop_s=0.2)),
        ([1.0, 0.5, 0.75], Limits(timeout_s=4.0, stop_s=0.75)),
        ([100.0] + [0.5] * 20, Limits(timeout_s=2.5, stop_s=0.5)),
        ([100.0] + [0.5] * 19, Limits(timeout_s=301.0, stop_s=0.5)),
    ],
)
def test_limits_follow_the_last_steps(durations_s: list[float], limits: Limits) -> None:
    """The longest of the last twenty sets the time-out, the median the stop; few steps say nothing."""
    assert limits_of(durations_s) == limits


# --- one by one -------------------------------------------------------------------------------

WAITS = _seen(1, Phase.RECEIVE)
COMPUTES = Hung(rank=0, waited_s=9.0, evidence="computes for 9.00 s, expected at most 2.00 s")
STOPS = Hung(rank=0, waited_s=9.0, evidence="stopped by a signal for 9.00 s while others run")
TAKES_NOT = Hung(
    rank=1, waited_s=9.0, evidence="does not take the input that rank 0 made at least 9.00 s ago"
)


@pytest.mark.parametrize(
    ("other", "hung"),
    [
        pytest.param(_seen(0, Phase.COMPUTE), [COMPUTES], id="computes too long, the other waits for it"),
        pytest.param(_seen(0, Phase.COMPUTE, waited_s=2.0), [], id="at the limit is not over it"),
        pytest.param(_seen(0, Phase.COMPUTE, state="t"), [], id="in the hands of a debugger"),
        pytest.param(_seen(0, Phase.COMPUTE, 1), [COMPUTES], id="hangs in the one after"),
        pytest.param(_seen(0, Phase.RECEIVE, 0), [], id="has not made the input yet"),
        pytest.param(_seen(0, Phase.RECEIVE, 1), [TAKES_NOT], id="has made it, and waits"),
        pytest.param(_seen(0, Phase.RECEIVE, 1, waited_s=1.0), [], id="may have made it just now"),
        pytest.param(_seen(0, Phase.REDUCE, -1), [TAKES_NOT], id="is done with all its operations"),
        pytest.param(_seen(0, Phase.SETTLE, 2), [TAKES_NOT], id="is done, and says so"),
        pytest.param(_seen(0, Phase.SETTLE, -1), [], id="does not say how far it is"),
        pytest.param(_seen(0, Phase.OUTSIDE, -1), [], id="is in the user's code"),
        pytest.param(_seen(0, Phase.OUTSIDE, -1, step=5), [TAKES_NOT], id="is a step ahead"),
        pytest.param(_seen(0, Phase.REDUCE, -1, step=3), [], id="is a step behind"),
        pytest.param(_seen(0, Phase.REDUCE, -1, generation=8), [], id="is in another generation"),
        pytest.param(_seen(0, Phase.REGROUP, 1), [], id="recovers, and its connections with it"),
        pytest.param(_seen(0, Phase.REDUCE, -1, state="t"), [], id="may be held with what it made"),
        pytest.param(_seen(0, Phase.REDUCE, -1, state="T"), [STOPS], id="is stopped with what it made"),
        pytest.param(_seen(0, Phase.EVALUATE, -1, state="T"), [STOPS], id="is stopped where none is judged"),
        pytest.param(_seen(2, Phase.REDUCE, -1), [], id="the maker is not to be seen"),
    ],
)
def test_one_waits_and_the_other(other: Seen, hung: list[Hung]) -> None:
    """Whoever stands still is named, whoever waits for it is not."""
    assert find_hung([WAITS, other], MAKERS) == hung
    assert find_hung([other, WAITS], MAKERS) == hung


def test_beyond_half_a_time_out_one_is_a_suspect() -> None:
    """Also one of a stage that would be empty without it; victims are none."""
    seen = [_seen(0, Phase.COMPUTE, waited_s=1.5), _seen(2, Phase.COMPUTE, waited_s=1.0), WAITS]
    assert (find_suspects(seen, MAKERS), find_hung(seen, MAKERS)) == ({0}, [])
    assert find_suspects([_staged(0, 0, 1.5), _staged(1, 0, 1.5)], {}) == {0, 1}


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.COMPUTE, Phase.RECEIVE}))
def test_other_phases_are_never_judged_by_the_time_out(phase: Phase) -> None:
    """Collectives wait for others; the user's code, evaluation, saving and recovery take what they take."""
    assert find_hung([_seen(0, phase, waited_s=1e6), _seen(1, phase, waited_s=1e6)], MAKERS) == []


def test_without_its_schedule_nobody_is_named_for_waiting() -> None:
    """Who made what is not known."""
    assert find_hung([WAITS, _seen(0, Phase.REDUCE)], {}) == []


@pytest.mark.parametrize("stopped_s", [0.2, 0.1])
def test_a_short_stop_is_no_hang(stopped_s: float) -> None:
    """A stop has to last longer than a usual step."""
    short = Seen(status=_status(0, Phase.COMPUTE), stage=0, state="T", stopped_s=stopped_s, limits=LIMITS)
    assert find_hung([short, WAITS], MAKERS) == []


def test_before_the_third_step_only_a_long_stop_counts() -> None:
    """Nobody knows yet how long a step takes."""
    slow = Seen(status=_status(0, Phase.COMPUTE), stage=0, state="S", waited_s=1e6)
    stopped = Seen(status=_status(1, Phase.COMPUTE), stage=1, state="T", waited_s=1e6, stopped_s=5.1)
    assert [hung.rank for hung in find_hung([slow, stopped], {})] == [1]


def test_when_all_are_stopped_somebody_suspended_the_job() -> None:
    """Nobody is guilty, whatever the clocks say; one that runs makes the others guilty."""
    stopped = [_seen(rank, Phase.COMPUTE, state="T") for rank in range(3)]
    assert find_hung(stopped, {}) == []
    running = _seen(3, Phase.COMPUTE, state="R", waited_s=0.0)
    assert [hung.rank for hung in find_hung([*stopped, running], {})] == [0, 1, 2]


def test_nobody_to_see_is_nobody_to_blame() -> None:
    """An empty node has no hang."""
    assert find_hung([], {}) == []


def test_a_stage_is_not_emptied_at_one_look() -> None:
    """Of all workers of a stage that hang the one that did so longest is named; elsewhere all are."""
    waits_s = {0: 8.0, 1: 9.0, 2: 7.0, 3: 7.0}
    stage_0 = [_staged(rank, 0, waited_s) for rank, waited_s in waits_s.items()]
    stage_1 = [_staged(4, 1, 8.0), _staged(5, 1, 8.0), _staged(6, 1, 0.0)]
    stage_2 = [_staged(7, 2, 8.0)]
    assert [hung.rank for hung in find_hung([*stage_0, *stage_1, *stage_2], {})] == [1, 4, 5, 7]


def _staged(rank: int, stage: int, waited_s: float) -> Seen:
    status = _status(rank, Phase.COMPUTE)
    return Seen(status=status, stage=stage, state="S", waited_s=waited_s, limits=LIMITS)


# --- any execution ----------------------------------------------------------------------------


class Execution(NamedTuple):
    """When every operation starts and ends; infinity for what never comes."""

    schedule: Schedule
    starts: list[list[float]]
    ends: list[list[float]]

    def place(self, rank: int, time_s: float) -> tuple[Phase, int, float]:
        """Where a worker is at a time, and since when."""
        since_s = 0.0
        for index, (start_s, end_s) in enumerate(zip(self.starts[rank], self.ends[rank], strict=True)):
            if time_s < start_s:
                return Phase.RECEIVE, index, since_s
            if time_s < end_s:
                return Phase.COMPUTE, index, start_s
            since_s = end_s
        return Phase.REDUCE, len(self.starts[rank]), since_s

    def ranks(self, problem: Problem) -> list[int]:
        """Those who live."""
        return [rank for rank, worker in enumerate(problem.workers) if problem.speed(worker) > 0]


def execute(
    problem: Problem, schedule: Schedule, *, scale: float = 1.0, halt: tuple[int, float] = (-1, 0.0)
) -> Execution:
    """Run a schedule in which one worker does nothing more from a moment on."""
    starts: list[list[float]] = [[] for _ in schedule.orders]
    ends: list[list[float]] = [[] for _ in schedule.orders]
    arrivals: dict[Any, float] = {None: 0.0}
    is_moving = True
    while is_moving:
        is_moving = False
        for rank, order in enumerate(schedule.orders):
            for op in order[len(starts[rank]) :]:
                if needed_by(op) not in arrivals:
                    break
                halt_s = halt[1] if halt[0] == rank else math.inf
                start_s = _until(halt_s, max(ends[rank][-1] if ends[rank] else 0.0, arrivals[needed_by(op)]))
                end_s = _until(halt_s, start_s + scale * duration(problem, op, schedule.workers[rank]))
                made = made_by(op, schedule.pp)
                comm_s = scale * problem.comm if made is not None and made.stage != op.stage else 0.0
                arrivals |= {made: end_s + comm_s} if made is not None else {}
                starts[rank].append(start_s)
                ends[rank].append(end_s)
                is_moving = True
    return Execution(schedule, starts, ends)


def _until(halt_s: float, time_s: float) -> float:
    return time_s if time_s <= halt_s else math.inf


SEEDS = st.integers(0, 2**32 - 1)
PROBLEMS = problems(dp=3, pp=4, microbatches=4)


@given(PROBLEMS, SEEDS)
def test_the_execution_of_these_tests_is_that_of_the_plan(problem: Problem, seed: int) -> None:
    """Where nobody stops, every operation runs when ``time_schedule`` says."""
    schedule = random_schedule(problem, random.Random(seed))
    timed = time_schedule(problem, schedule)
    execution = execute(problem, schedule)
    assert tuple(map(tuple, execution.starts)) == timed.starts
    assert tuple(map(tuple, execution.ends)) == timed.ends


@given(PROBLEMS, SEEDS, st.data())
def test_nobody_is_guilty_while_nobody_is_over_the_time_out(
    problem: Problem, seed: int, data: st.DataObject
) -> None:
    """At any moment, when no operation and no transfer takes longer, however long others wait for them."""
    schedule = random_schedule(problem, random.Random(seed))
    execution = execute(problem, schedule)
    times_s = sorted({time_s for row in [*execution.starts, *execution.ends] for time_s in row})
    time_s = data.draw(st.sampled_from(times_s) | st.floats(0, times_s[-1] + 1))
    longest_s = max(
        end_s - start_s
        for starts, ends in zip(execution.starts, execution.ends, strict=True)
        for start_s, end_s in zip(starts, ends, strict=True)
    )
    # A hair more, for what is lost when times are added and subtracted.
    limits = Limits(timeout_s=max(longest_s, problem.comm) * (1 + 1e-9) + 1e-9)
    assert find_hung(_look(execution, problem, time_s, limits), {0: find_makers(schedule)}) == []


def _look(execution: Execution, problem: Problem, time_s: float, limits: Limits) -> list[Seen]:
    seen = []
    for rank in execution.ranks(problem):
        phase, op, since_s = execution.place(rank, time_s)
        status = _status(rank, phase, op, generation=0, step=0)
        seen.append(
            Seen(
                status=status,
                stage=rank % problem.pp,
                state="S",
                waited_s=time_s - since_s,
                limits=limits,
            )
        )
    return seen


@settings(max_examples=60)
@given(PROBLEMS, SEEDS, st.data(), st.sampled_from("ST"))
def test_exactly_the_one_that_stops_is_found(
    problem: Problem, seed: int, data: st.DataObject, state: str
) -> None:
    """Wherever a worker stops in a step, by a signal or by itself, looks find it, and first and only it."""
    schedule = random_schedule(problem, random.Random(seed))
    scale = 1.0 / time_schedule(problem, schedule).makespan
    healthy = execute(problem, schedule, scale=scale)
    busy = [rank for rank in healthy.ranks(problem) if schedule.orders[rank]]
    rank = data.draw(st.sampled_from(busy))
    # A worker alone that is stopped is a job that was suspended.
    assume(state == "S" or len(healthy.ranks(problem)) > 1)
    stops_s = data.draw(st.floats(0, healthy.ends[rank][-1], exclude_max=True))
    assume(stops_s < healthy.ends[rank][-1])
    execution = execute(problem, schedule, scale=scale, halt=(rank, stops_s))
    looks = _looks(execution, problem, stopped=rank if state == "T" else -1, stops_s=stops_s)
    found = next((ranks for ranks in looks if ranks), [])
    assert found == [rank], f"{Worker(*divmod(rank, problem.pp))} stopped at {stops_s}"


def _looks(execution: Execution, problem: Problem, *, stopped: int, stops_s: float) -> Iterator[list[int]]:
    """Yield who is found at each look, until everybody must have been found."""
    makers = {0: find_makers(execution.schedule)}
    clocks = Clocks(EVERY_S)
    for number in range(math.ceil((1.0 + 3.0 + 1.0) / EVERY_S)):
        now_s = number * EVERY_S
        sights = []
        for rank in execution.ranks(problem):
            phase, op, _ = execution.place(rank, now_s)
            state = "T" if rank == stopped and now_s > stops_s else "S"
            sights.append(Sight(status=_status(rank, phase, op, generation=0, step=0), state=state))
        spent = clocks.see(now_s, sights)
        seen = [
            Seen(
                status=sight.status,
                stage=sight.status.rank % problem.pp,
                state=sight.state,
                waited_s=spent[sight.status.rank].waited_s,
                stopped_s=spent[sight.status.rank].stopped_s,
                limits=LIMITS,
            )
            for sight in sights
        ]
        yield [hung.rank for hung in find_hung(seen, makers)]
