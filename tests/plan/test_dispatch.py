"""Whatever the rules, the list scheduler does all the work, once, where and when it is allowed."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.plan.bounds import lower_bound
from holdfast.plan.dispatch import Floor, Placed, Policy, dispatch
from holdfast.plan.draft import to_timed
from holdfast.plan.problem import Costs, Problem
from holdfast.plan.routing import floors_of, recycle_floors
from holdfast.plan.search import changed, policies
from holdfast.plan.timing import peak_of
from holdfast.plan.validate import validate
from problems import problems
from schedules import make_problem


def _floors(problem: Problem) -> list[Floor]:
    every = [*floors_of(problem, lower_bound(problem)), *recycle_floors(problem, is_coupled=False)]
    return [*every, *recycle_floors(problem, is_coupled=True)]


@st.composite
def _runs(draw: st.DrawFn) -> tuple[Floor, Policy]:
    """Any floor of any problem, with any rules that a search could come to."""
    problem = draw(problems())
    rng = draw(st.randoms(use_true_random=False))
    policy = rng.choice(list(policies(problem)))
    for _ in range(rng.randrange(12)):
        policy = changed(problem, policy, rng)
    return rng.choice(_floors(problem)), policy


@settings(max_examples=100)
@given(_runs())
def test_any_rules_lead_to_a_valid_schedule(run: tuple[Floor, Policy]) -> None:
    """Everything is done once, by the rules of the validator, and in the order of its starts."""
    floor, policy = run
    placed = dispatch(floor, policy)
    timed = to_timed(floor.problem, placed, is_coupled=floor.is_coupled)
    assert validate(floor.problem, timed) == []
    assert [start for _, _, _, start, _ in placed] == sorted(start for _, _, _, start, _ in placed)
    assert dispatch(floor, policy) == placed


@settings(max_examples=100)
@given(_runs())
def test_limits_depths_and_queues_are_kept(run: tuple[Floor, Policy]) -> None:
    """Nobody takes more than its limit or holds more than the rules allow; a closed queue stays closed."""
    floor, policy = run
    problem = floor.problem
    placed = dispatch(floor, policy)
    timed = to_timed(problem, placed, is_coupled=floor.is_coupled)
    for worker, order, limit in zip(problem.workers, timed.schedule.orders, floor.limits, strict=True):
        assert sum(op.kind == "F" for op in order) <= limit
        assert peak_of(order) <= policy.depth[worker.stage] <= problem.cap(worker.stage)
        for op in order:
            home = floor.queues[op.stage][op.pipeline * problem.microbatches + op.microbatch]
            assert floor.is_open or home == worker.pipeline
            assert not floor.is_coupled or op.kind in "FB"


@settings(max_examples=60)
@given(_runs())
def test_nobody_idles_beside_work_of_its_own(run: tuple[Floor, Policy]) -> None:
    """A weight gradient or an arrived gradient never waits for a worker that does nothing."""
    floor, policy = run
    problem = floor.problem
    placed = dispatch(floor, policy)
    by_worker: dict[int, list[Placed]] = {}
    ends: dict[tuple[int, int, int], float] = {}
    for each in placed:
        by_worker.setdefault(each[0], []).append(each)
        ends[each[1], each[2], each[0] % problem.pp] = each[4]
    for worker, mine in by_worker.items():
        stage, free = worker % problem.pp, 0.0
        for _, kind, q, start, end in mine:
            if kind == 1:
                is_last = stage == problem.pp - 1
                there = ends[0, q, stage] if is_last else ends[1, q, stage + 1] + problem.comm
                assert start == max(there, free)
            elif kind == 2:
                assert start == free
            free = end


def _policy(problem: Problem, **rules: object) -> Policy:
    first = next(policies(problem))
    values = {name: getattr(first, name) for name in first.__struct_fields__}
    return Policy(**{**values, **rules})


def _text(floor: Floor, policy: Policy) -> list[str]:
    placed = dispatch(floor, policy)
    return str(to_timed(floor.problem, placed, is_coupled=floor.is_coupled).schedule).splitlines()[1:]


def test_each_rule_does_what_it_says() -> None:
    """One worker with three micro-batches shows depth, backlog and what goes first."""
    problem = make_problem(1, 1, 3)
    floor = floors_of(problem, 9.0)[0]
    assert _text(floor, _policy(problem)) == ["0.0: 0F0.0 0I0.0 0F0.1 0I0.1 0F0.2 0I0.2 0W0.0 0W0.1 0W0.2"]
    assert _text(floor, _policy(problem, depth=(1,))) == ["0.0: 0F0.0 0B0.0 0F0.1 0B0.1 0F0.2 0B0.2"]
    assert _text(floor, _policy(problem, backlog=(0,))) == ["0.0: 0F0.0 0B0.0 0F0.1 0B0.1 0F0.2 0B0.2"]
    first = _policy(problem, forward_first=(True,), input_rank=(2.0, 1.0, 0.0))
    assert _text(floor, first) == ["0.0: 0F0.0 0F0.1 0F0.2 0I0.2 0I0.1 0I0.0 0W0.2 0W0.1 0W0.0"]
    ranked = _policy(problem, depth=(1,), forward_rank=(1.0, 2.0, 0.0))
    assert _text(floor, ranked) == ["0.0: 0F0.2 0B0.2 0F0.0 0B0.0 0F0.1 0B0.1"]


def test_full_memory_passes_gradients_on_or_makes_room() -> None:
    """With two held and both I possible, the rule says whether the second I or the first W comes first."""
    problem = make_problem(1, 1, 3, memory=(2,))
    floor = floors_of(problem, 9.0)[0]
    rules = {"forward_first": (True,)}
    passing = _policy(problem, input_before_weight=(True,), **rules)
    assert _text(floor, passing) == ["0.0: 0F0.0 0F0.1 0I0.0 0I0.1 0W0.0 0F0.2 0I0.2 0W0.1 0W0.2"]
    room = _policy(problem, input_before_weight=(False,), **rules)
    assert _text(floor, room) == ["0.0: 0F0.0 0F0.1 0B0.0 0F0.2 0I0.1 0I0.2 0W0.1 0W0.2"]


def test_an_open_floor_helps_a_pipeline_that_falls_behind() -> None:
    """Peers take what waits for a dead worker, and nothing is offered to those whose share is none."""
    problem = make_problem(3, 2, 2, dead="0.0")
    placed = dispatch(floors_of(problem, lower_bound(problem))[-1], next(policies(problem)))
    forwards = [(worker, q) for worker, kind, q, _, _ in placed if kind == 0 and worker % 2 == 0]
    assert sorted(q for _, q in forwards) == list(range(6))
    assert {worker // 2: sum(who == worker for who, _ in forwards) for worker, _ in forwards} == {1: 3, 2: 3}


SHARELESS = Problem(
    dp=5,
    pp=4,
    microbatches=5,
    comm=0.2,
    memory=(1, 1, 1, 1),
    costs=(Costs(1, 1, 0.5), Costs(3.7, 1, 0.5), Costs(0, 0.5, 1), Costs(2, 1, 2)),
    speeds=((1, 1, 1, 1), (0, 0.3, 0.3, 1), (0, 1, 0.9, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
)


def test_workers_without_a_share_do_not_block_the_others() -> None:
    """Work that waits in the queue of a worker whose share is none is done by its peers, on every floor."""
    rng = random.Random(0)
    for floor in _floors(SHARELESS):
        policy = next(policies(SHARELESS))
        for _ in range(10):
            timed = to_timed(SHARELESS, dispatch(floor, policy), is_coupled=floor.is_coupled)
            assert validate(SHARELESS, timed) == []
            policy = changed(SHARELESS, policy, rng)
