"""A schedule that breaks a rule is found, with the rule, the place and words; a good one is left alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.plan.grid import Place
from holdfast.plan.ops import Op, Schedule, parse_schedule
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.timing import Timed, time_schedule
from holdfast.plan.validate import Violation, check, check_order, validate, validate_order
from schedules import make_problem, one_f_one_b, timed_1f1b

Rows = dict[Worker, list[tuple[Op, float, float]]]


def _rows(timed: Timed) -> Rows:
    rows: Rows = {worker: [] for worker in timed.schedule.workers}
    for worker, op, start, end in timed.rows():
        rows[worker].append((op, start, end))
    return rows


def _timed(like: Timed, rows: Rows) -> Timed:
    ordered = [rows[worker] for worker in like.schedule.workers]
    orders = tuple(tuple(op for op, _, _ in row) for row in ordered)
    return Timed(
        schedule=msgspec.structs.replace(like.schedule, orders=orders),
        starts=tuple(tuple(start for _, start, _ in row) for row in ordered),
        ends=tuple(tuple(end for _, _, end in row) for row in ordered),
    )


def _rules(problem: Problem, timed: Timed) -> set[str]:
    return {violation.rule for violation in validate(problem, timed)}


# --- good ones --------------------------------------------------------------------------------

GOOD = {
    "healthy": make_problem(),
    "dead": make_problem(dead="1.2"),
    "slow": make_problem(slow="0.1=0.5 2.3=0.1"),
    "one worker": make_problem(1, 1, 1),
    "comm": make_problem(comm=0.3),
    "uneven": make_problem(costs=(Costs(5, 6, 4), Costs(7.1, 8, 4), Costs(1, 0, 3), Costs(0, 1, 0))),
    "tiny": make_problem(costs=(Costs(1e-7, 3e-7, 1e-8),) * 4, slow="0.0=0.3"),
    "huge": make_problem(costs=(Costs(1e9, 3e9, 1e8),) * 4, slow="0.0=0.3"),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("is_split", [False, True])
def test_good_schedules_break_no_rule(name: str, is_split: bool) -> None:
    """Whatever the shape, the costs and the speeds."""
    problem = GOOD[name]
    timed = timed_1f1b(problem, is_split=is_split)
    assert validate(problem, timed) == []
    assert validate_order(problem, timed.schedule) == []
    check(problem, timed)
    assert check_order(problem, timed.schedule) == timed


def test_a_cap_is_kept_when_one_micro_batch_leaves_as_the_next_one_comes() -> None:
    """1F1B needs exactly pp - stage; at equal times the end counts before the start."""
    problem = make_problem(memory=(4, 3, 2, 1))
    assert validate(problem, timed_1f1b(problem)) == []


def test_times_need_not_start_at_zero_nor_be_the_earliest() -> None:
    """What is late or long ago is not wrong."""
    problem = make_problem()
    timed = timed_1f1b(problem)
    for shift in (-100.0, 1e6):
        moved = {
            worker: [(op, start + shift, end + shift) for op, start, end in row]
            for worker, row in _rows(timed).items()
        }
        assert validate(problem, _timed(timed, moved)) == []
    rows = _rows(timed)
    op, start, end = rows[Worker(0, 0)][-1]
    rows[Worker(0, 0)][-1] = (op, start + 5, end + 5)
    assert validate(problem, _timed(timed, rows)) == []


# --- one rule after the other -----------------------------------------------------------------


def _break(change: Callable[[Rows], None], problem: Problem | None = None) -> list[Violation]:
    problem = problem or make_problem(dead="1.2")
    timed = timed_1f1b(problem)
    rows = _rows(timed)
    change(rows)
    return validate(problem, _timed(timed, rows))


def _drop(rows: Rows) -> None:
    del rows[Worker(0, 1)][2]


def _repeat(rows: Rows) -> None:
    rows[Worker(0, 1)].append((Op("F", 0, 0, 1), 50.0, 51.0))


def _mix(rows: Rows) -> None:
    rows[Worker(0, 1)].append((Op("W", 0, 5, 1), 50.0, 51.0))


def _use_the_dead(rows: Rows) -> None:
    rows[Worker(1, 2)].append(rows[Worker(0, 2)].pop())


def _use_another_stage(rows: Rows) -> None:
    rows[Worker(0, 1)].append(rows[Worker(0, 0)].pop())


def _scatter(rows: Rows) -> None:
    rows[Worker(2, 2)].append((rows[Worker(0, 2)].pop()[0], 50.0, 52.0))


def _invent(rows: Rows) -> None:
    rows[Worker(0, 1)].append((Op("F", 0, 6, 1), 50.0, 51.0))


def _turn_around(rows: Rows) -> None:
    row = rows[Worker(0, 0)]
    where = [op.kind + str(op.microbatch) for op, _, _ in row]
    first, second = where.index("F5"), where.index("B5")
    row[first], row[second] = row[second], row[first]


def _hurry(rows: Rows) -> None:
    row = rows[Worker(0, 0)]
    op, start, end = row[-1]
    row[-1] = (op, start, end - 0.5)


def _overlap(rows: Rows) -> None:
    row = rows[Worker(0, 0)]
    op, start, end = row[1]
    row[1] = (op, start - 0.5, end - 0.5)


def _travel_in_time(rows: Rows) -> None:
    row = rows[Worker(0, 0)]
    op, _, _ = row[-1]
    row[-1] = (op, -10.0, -8.0)


def _jump_the_queue(rows: Rows) -> None:
    for index, (op, start, end) in enumerate(rows[Worker(0, 3)]):
        rows[Worker(0, 3)][index] = (op, start - 1, end - 1)


@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        (_drop, "missing", r"1F0\.2 is missing"),
        (_repeat, "twice", r"1F0\.0 is on 0\.1, and on 0\.1 already"),
        (_mix, "mixed", r"1B0\.5 stands beside I or W"),
        (_use_the_dead, "dead", r"2B0\.5 is on 1\.2, which is dead"),
        (_use_another_stage, "stage", r"0B0\.5 is on 0\.1, expected a worker of stage 0"),
        (_scatter, "scattered", r"2B0\.5 is on 2\.2 but 2F0\.5 on 0\.2"),
        (_invent, "unknown", r"1F0\.6 on 0\.1 does not exist"),
        (_turn_around, "sequence", r"0B0\.5 stands before 0F0\.5 on 0\.0"),
        (_hurry, "duration", r"0B0\.5 lasts 1\.5 on 0\.0, expected 2"),
        (_overlap, "overlap", r"0F0\.1 starts at 0\.5 on 0\.0, busy with 0F0\.0 until 1"),
        (_travel_in_time, "order", r"0B0\.5 starts at -10 on 0\.0, before"),
        (_jump_the_queue, "dependency", r"3F0\.0 starts at 2, but what it needs of 2F0\.0 is there at 3"),
    ],
    ids=lambda value: value.__name__[1:] if callable(value) else "",
)
def test_each_rule_is_guarded(change: Callable[[Rows], None], rule: str, words: str) -> None:
    """Broken once, it is named with what is there and what was expected."""
    found = _break(change)
    assert rule in {violation.rule for violation in found}
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("\n".join(map(str, found)))


def test_the_gradient_of_a_coupled_backward_leaves_at_its_end() -> None:
    """An operation that would do with the input part alone still waits for the whole."""
    problem = make_problem(1, 2, 1)
    text = "dp 1 pp 2 microbatches 1\n0.0: 0F0.0 0B0.0\n0.1: 1F0.0 1B0.0\n"
    schedule = parse_schedule(text)
    early = Timed(schedule=schedule, starts=((0.0, 3.0), (1.0, 2.0)), ends=((1.0, 5.0), (2.0, 4.0)))
    assert _rules(problem, early) == {"dependency"}
    assert _rules(problem, time_schedule(problem, schedule)) == set()


def test_transfers_take_their_time_but_not_within_a_stage() -> None:
    """Times made without communication break the rule at every stage but the first."""
    fast, problem = make_problem(1, 2, 1), make_problem(1, 2, 1, comm=0.5)
    found = validate(problem, timed_1f1b(fast))
    assert [(violation.rule, violation.place) for violation in found] == [
        ("dependency", Place(Worker(0, 1), 0)),
        ("dependency", Place(Worker(0, 0), 1)),
    ]


def test_memory_is_counted_from_the_start_of_forward_to_the_end_of_backward() -> None:
    """One less than 1F1B needs is one too many held, and the worker and the moment are named."""
    problem = make_problem(1, 4, 6, memory=(4, 2, 2, 1))
    found = validate(problem, timed_1f1b(problem))
    assert found[0].message == "0.1 holds 3 micro-batches when 1F0.2 starts at 3, expected at most 2"
    assert {violation.rule for violation in found} == {"memory"}


def test_a_split_backward_holds_its_micro_batch_until_the_weights_are_done() -> None:
    """After I alone it is still in flight."""
    problem = make_problem(1, 1, 2, memory=(1,))
    late = "dp 1 pp 1 microbatches 2\n0.0: 0F0.0 0I0.0 0F0.1 0I0.1 0W0.0 0W0.1\n"
    good = "dp 1 pp 1 microbatches 2\n0.0: 0F0.0 0I0.0 0W0.0 0F0.1 0I0.1 0W0.1\n"
    assert _rules(problem, time_schedule(problem, parse_schedule(late))) == {"memory"}
    assert _rules(problem, time_schedule(problem, parse_schedule(good))) == set()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_times_must_be_numbers(wrong: float) -> None:
    """Not a number is never before or after anything, so it is refused by itself."""
    problem = make_problem(1, 1, 1)
    timed = timed_1f1b(problem)
    broken = msgspec.structs.replace(timed, ends=((1.0, wrong),))
    assert [violation.rule for violation in validate(problem, broken)] == ["time"]


def test_a_schedule_of_another_job_is_refused() -> None:
    """Its shape is compared before anything in it is looked up."""
    problem, other = make_problem(2, 2, 2), make_problem(2, 2, 3)
    (found,) = validate(problem, timed_1f1b(other))
    assert (found.rule, str(found)) == ("shape", "the schedule has microbatches 3, the problem has 2")
    good = timed_1f1b(problem)
    for broken in (
        msgspec.structs.replace(good, starts=good.starts[:-1]),
        msgspec.structs.replace(good, ends=((), *good.ends[1:])),
        Timed(schedule=msgspec.structs.replace(good.schedule, orders=()), starts=(), ends=()),
    ):
        assert _rules(problem, broken) == {"shape"}


# --- no way forward ---------------------------------------------------------------------------

CIRCLE = "dp 1 pp 2 microbatches 2\n0.0: 0F0.0 0B0.0 0F0.1 0B0.1\n0.1: 1F0.0 1F0.1 1B0.0 1B0.1\n"


def test_a_deadlock_tells_who_waits_for_whom() -> None:
    """The circle is closed in the message."""
    words = r"deadlocks: 0\.0 waits with 0B0\.0 for 0\.1, 0\.1 waits with 1F0\.1 for 0\.0$"
    with pytest.raises(InputError, match=words):
        check_order(make_problem(1, 2, 2), parse_schedule(CIRCLE))


def test_waiting_for_what_nobody_makes_is_told() -> None:
    """A forward that was left out stops the stages after it."""
    text = CIRCLE.replace("0F0.1 ", "")
    with pytest.raises(InputError, match=r"0\.1 waits with 1F0\.1 for what nobody makes"):
        time_schedule(make_problem(1, 2, 2), parse_schedule(text))


def test_a_deadlock_is_found_where_operations_take_no_time() -> None:
    """All times are 0 and fit each other, yet nobody could ever begin."""
    problem = make_problem(1, 2, 2, costs=(Costs(0, 0, 1),) * 2)
    text = CIRCLE.replace("B", "I").replace("\n0.1:", " 0W0.0 0W0.1\n0.1:")[:-1] + " 1W0.0 1W0.1\n"
    times = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0, 1.0, 2.0)
    timed = Timed(schedule=parse_schedule(text), starts=(times[0],) * 2, ends=(times[1],) * 2)
    assert _rules(problem, timed) == {"deadlock"}


# --- telling it -------------------------------------------------------------------------------


def test_an_error_shows_the_grid_with_the_place_marked() -> None:
    """The first violation is told, the others are counted, and carets stand below the operation."""
    problem = make_problem(1, 2, 2, memory=(1, 1))
    with pytest.raises(InputError) as caught:
        check(problem, timed_1f1b(problem))
    assert str(caught.value) == (
        "0.0 holds 2 micro-batches when 0F0.1 starts at 1, expected at most 1\n"
        "     0     2     4     6     8\n"
        "0.0  F0 F1 .  .  B0--- .  B1---\n"
        "        ^^^\n"
        "0.1  .  F0 B0--- F1 B1--- .  .\n"
        "\n"
        "F forward, B backward\n"
    )


def test_a_schedule_too_broken_to_draw_is_still_explained() -> None:
    """What is missing has no place; nothing is drawn, nothing crashes."""
    problem = make_problem(1, 1, 2)
    nothing = Schedule(dp=1, pp=1, microbatches=2, orders=((),))
    message = r"^0F0\.0 is missing \(and 5 more violations\)$"
    with pytest.raises(InputError, match=message):
        check_order(problem, nothing)
    with pytest.raises(InputError, match=message):
        check(problem, Timed(schedule=nothing, starts=((),), ends=((),)))


# --- any of them ------------------------------------------------------------------------------


def _random_problem(rng: random.Random) -> Problem:
    dp, pp, microbatches = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 6)
    costs = tuple(Costs(*(rng.choice((0.5, 1.0, 3.7)) for _ in range(3))) for _ in range(pp))
    dead = [f"{pipeline}.{rng.randrange(pp)}" for pipeline in range(1, dp) if rng.random() < 0.3]
    slow = "0.0=0.4" if rng.random() < 0.5 else ""
    comm = rng.choice((0.0, 0.3))
    return make_problem(dp, pp, microbatches, dead=" ".join(dead), slow=slow, costs=costs, comm=comm)


def _corrupt(rng: random.Random, problem: Problem, timed: Timed) -> tuple[str, Problem, Timed]:
    """Do one thing that no schedule made as early as possible survives."""
    rows = _rows(timed)
    busy = [worker for worker in timed.schedule.workers if rows[worker]]
    worker = rng.choice(busy)
    row = rows[worker]
    place = rng.randrange(len(row))
    op, start, end = row[place]
    others = [other for other in timed.schedule.workers if other != worker]
    ways = ["drop", "repeat", "rename", "stretch", "kill", "cap"]
    ways += ["early"] * (start > 0) + ["move"] * bool(others)
    way = rng.choice(ways)
    if way == "drop":
        del row[place]
    elif way == "repeat":
        row.insert(rng.randrange(len(row) + 1), (op, end, end + (end - start)))
    elif way == "rename":
        kinds = [kind for kind in "FIWB" if kind != op.kind]
        row[place] = (op._replace(kind=rng.choice(kinds)), start, end)
    elif way == "stretch":
        row[place] = (op, start, end + rng.choice((-0.1, 0.1)))
    elif way == "early":
        row[place] = (op, start - 0.1, end - 0.1)
    elif way == "move":
        del row[place]
        rows[rng.choice(others)].append((op, 1e3 + start, 1e3 + end))
    elif way == "kill":
        speeds = [list(speeds) for speeds in problem.speeds]
        speeds[worker.pipeline][worker.stage] = 0.0
        if not any(speeds[pipeline][worker.stage] for pipeline in range(problem.dp)):
            del row[place]  # The last of its stage cannot die.
        else:
            problem = msgspec.structs.replace(problem, speeds=tuple(map(tuple, speeds)))
    elif way == "cap":
        peak = timed.peak_in_flight[worker]
        if peak == 1:
            del row[place]  # A cap of nothing is no problem.
        else:
            problem = msgspec.structs.replace(problem, memory=(peak - 1,) * problem.pp)
    return way, problem, _timed(timed, rows)


@given(seed=st.integers(0, 2**32))
def test_whatever_is_done_to_a_good_schedule_is_found(seed: int) -> None:
    """A valid schedule has no violation; after any one corruption it has at least one, which can be told."""
    rng = random.Random(seed)
    problem = _random_problem(rng)
    timed = time_schedule(problem, one_f_one_b(problem, is_split=True))
    assert validate(problem, timed) == []
    way, broken, wrong = _corrupt(rng, problem, timed)
    assert validate(broken, wrong) != [], f"{way}\n{wrong.schedule}"
    with pytest.raises(InputError):
        check(broken, wrong)
