"""Whether a schedule does what it should: every rule it breaks, with the place.

Written apart from everything that makes schedules, so that both would have to be wrong in the same way. The
rules: each micro-batch at each stage has F, then either B or I and W, once, on one live worker of that stage;
what an operation needs is there when it starts; a worker does one operation at a time, in the order that is
written, each as long as its cost over the worker's speed; nobody holds more micro-batches than memory allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import msgspec

from holdfast.errors import InputError
from holdfast.plan.grid import Place, mark
from holdfast.plan.ops import KINDS, Op, Schedule
from holdfast.plan.problem import Problem, Worker
from holdfast.plan.timing import Timed, time_schedule

Rule = Literal[
    "shape",
    "time",
    "unknown",
    "stage",
    "dead",
    "twice",
    "missing",
    "mixed",
    "scattered",
    "sequence",
    "duration",
    "order",
    "overlap",
    "dependency",
    "memory",
    "deadlock",
]
_FLOAT = 1e-12
"""How much of a time floats may lose, as a share of it."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One rule broken; ``place`` is where it shows, if it shows at an operation that is there."""

    rule: Rule
    message: str
    place: Place | None = None

    def __str__(self) -> str:
        return self.message


def check(problem: Problem, timed: Timed) -> None:
    """Raise if a schedule with its times breaks a rule; the message has the grid with the place marked."""
    found = validate(problem, timed)
    if found:
        raise InputError(_explain(problem, timed, found))


def validate(problem: Problem, timed: Timed) -> list[Violation]:
    """Return everything that is wrong with a schedule and its times; work grows with its operations."""
    found = _check_shape(problem, timed.schedule) or _check_rows(timed)
    if found:
        return found
    book = _Book(problem, timed.schedule)
    found = [*book.found, *_check_complete(problem, book)]
    if found:  # Times of operations that are missing or doubled cannot be judged.
        return found
    found = [*_check_clock(problem, timed), *_check_needs(problem, timed, book)]
    found += _check_memory(problem, timed)
    return found or _check_deadlock(problem, timed.schedule)


def validate_order(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return what is wrong with a schedule whatever its times: who does what how often, in which order."""
    shape = _check_shape(problem, schedule)
    if shape:
        return shape
    book = _Book(problem, schedule)
    return [*book.found, *_check_complete(problem, book)]


def check_order(problem: Problem, schedule: Schedule) -> Timed:
    """Return a schedule with its earliest times, or raise if it breaks a rule or waits for ever."""
    found = validate_order(problem, schedule)
    if found:
        raise InputError(_sum_up(found))
    timed = time_schedule(problem, schedule)
    check(problem, timed)
    return timed


# --- what is there ----------------------------------------------------------------------------


class _Book:
    """Where each operation stands: ``at[kind][key]`` is its worker's index and its position there.

    A key numbers what a stage does for a micro-batch: all of stage 0 first, then all of stage 1, and so on.
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self._problem = problem
        self.found: list[Violation] = []
        self.at: dict[str, dict[int, tuple[int, int]]] = {kind: {} for kind in KINDS}
        for index, (worker, order) in enumerate(zip(schedule.workers, schedule.orders, strict=True)):
            for position, op in enumerate(order):
                self._enter(op, worker, index, position)

    def op(self, kind: str, key: int) -> Op:
        rest, microbatch = divmod(key, self._problem.microbatches)
        stage, pipeline = divmod(rest, self._problem.dp)
        return Op(kind, pipeline, microbatch, stage)

    def _enter(self, op: Op, worker: Worker, index: int, position: int) -> None:
        kind, pipeline, microbatch, stage = op
        dp, pp, microbatches = self._problem.dp, self._problem.pp, self._problem.microbatches
        is_known = 0 <= pipeline < dp and 0 <= microbatch < microbatches and 0 <= stage < pp
        if not is_known or kind not in self.at:
            size = f"dp {dp}, pp {pp} and microbatches {microbatches}"
            self._note("unknown", f"{op} on {worker} does not exist with {size}", worker, position)
            return
        if stage != worker.stage:
            message = f"{op} is on {worker}, expected a worker of stage {stage}"
            self._note("stage", message, worker, position)
        if self._problem.speeds[worker.pipeline][worker.stage] == 0:
            self._note("dead", f"{op} is on {worker}, which is dead", worker, position)
        key = (stage * dp + pipeline) * microbatches + microbatch
        if key in self.at[kind]:
            first = _worker(self._problem, self.at[kind][key][0])
            self._note("twice", f"{op} is on {worker}, and on {first} already", worker, position)
            return
        self.at[kind][key] = (index, position)

    def _note(self, rule: Rule, message: str, worker: Worker, position: int) -> None:
        self.found.append(_note(rule, message, worker, position))


def _check_shape(problem: Problem, schedule: Schedule) -> list[Violation]:
    """The schedule must be one for this problem before anything in it can be looked up."""
    for name in ("dp", "pp", "microbatches"):
        is_value, expected = getattr(schedule, name), getattr(problem, name)
        if is_value != expected:
            message = f"the schedule has {name} {is_value}, the problem has {expected}"
            return [Violation(rule="shape", message=message)]
    if len(schedule.orders) != problem.dp * problem.pp:
        message = f"the schedule has {len(schedule.orders)} workers, expected {problem.dp * problem.pp}"
        return [Violation(rule="shape", message=message)]
    return []


def _check_rows(timed: Timed) -> list[Violation]:
    """Every operation must have a start and an end, in numbers."""
    sizes = list(map(len, timed.schedule.orders))
    for name, rows in (("starts", timed.starts), ("ends", timed.ends)):
        if list(map(len, rows)) != sizes:
            message = f"the {name} do not belong to the operations, expected one number for each"
            return [Violation(rule="shape", message=message)]
        for worker, row in zip(timed.schedule.workers, rows, strict=True):
            wrong = next((time for time in row if not math.isfinite(time)), None)
            if wrong is not None:
                message = f"the {name} of {worker} hold {wrong:g}, expected finite numbers"
                return [Violation(rule="time", message=message)]
    return []


def _check_complete(problem: Problem, book: _Book) -> Iterator[Violation]:
    """Each micro-batch at each stage: F, then B or I and W, on one worker."""
    for key in range(problem.dp * problem.pp * problem.microbatches):
        where = {kind: book.at[kind][key] for kind in KINDS if key in book.at[kind]}
        if "F" in where and len(where) == (2 if "B" in where else 3):
            yield from _check_together(problem, book, key, where)
        elif "B" in where and len(where) > 1 + ("F" in where):
            index, position = where["B"]
            message = f"{book.op('B', key)} stands beside I or W, expected either B or both of them"
            yield _note("mixed", message, _worker(problem, index), position)
        else:
            for kind in "F" if "B" in where else "FIW":
                if kind not in where:
                    yield Violation(rule="missing", message=f"{book.op(kind, key)} is missing")


def _check_together(
    problem: Problem, book: _Book, key: int, where: dict[str, tuple[int, int]]
) -> Iterator[Violation]:
    for before, after in pairwise("FB" if "B" in where else "FIW"):
        (other, earlier), (index, position) = where[before], where[after]
        if other == index and earlier < position:
            continue
        worker, first, then = _worker(problem, index), book.op(before, key), book.op(after, key)
        if other != index:
            words = f"is on {worker} but {first} on {_worker(problem, other)}, expected one worker for both"
            yield _note("scattered", f"{then} {words}", worker, position)
        else:
            yield _note("sequence", f"{then} stands before {first} on {worker}", worker, position)


# --- when it happens --------------------------------------------------------------------------


def _check_clock(problem: Problem, timed: Timed) -> Iterator[Violation]:
    """One operation at a time, in the order that is written, each as long as it takes."""
    least = _slack(problem)
    for worker, order, starts, ends in zip(
        timed.schedule.workers, timed.schedule.orders, timed.starts, timed.ends, strict=True
    ):
        lasts = _durations(problem, worker)
        before = free = starts[0] if starts else 0.0
        for position, (op, start, end) in enumerate(zip(order, starts, ends, strict=True)):
            slack = least + _FLOAT * abs(end)
            if abs(end - start - lasts[op.kind]) > slack:
                words = f"lasts {end - start:g} on {worker}, expected {lasts[op.kind]:g}"
                yield _note("duration", f"{op} {words}", worker, position)
            if start < before - slack:
                words = f"starts at {start:g} on {worker}, before {order[position - 1]} at {before:g}"
                yield _note("order", f"{op} {words}", worker, position)
            elif start < free - slack:
                words = f"starts at {start:g} on {worker}, busy with {order[position - 1]} until {free:g}"
                yield _note("overlap", f"{op} {words}", worker, position)
            before, free = start, end


def _check_needs(problem: Problem, timed: Timed, book: _Book) -> Iterator[Violation]:
    """Nothing starts before what it needs has been made and has travelled."""
    least = _slack(problem)
    for kind in KINDS:
        for key, (index, position) in book.at[kind].items():
            needed = _needed(problem, book, kind, key)
            if needed is None:
                continue
            needed_kind, needed_key, travel = needed
            other, place = book.at[needed_kind][needed_key]
            start, there = timed.starts[index][position], timed.ends[other][place] + travel
            if start < there - least - _FLOAT * abs(there):
                op, need = book.op(kind, key), book.op(needed_kind, needed_key)
                words = f"starts at {start:g}, but what it needs of {need} is there at {there:g}"
                yield _note("dependency", f"{op} {words}", _worker(problem, index), position)


def _needed(problem: Problem, book: _Book, kind: str, key: int) -> tuple[str, int, float] | None:
    """Return what an operation waits for, and how long that travels.

    The same micro-batch one stage on or back is one row of keys further or nearer.
    """
    row = problem.dp * problem.microbatches
    if kind == "F":
        return ("F", key - row, problem.comm) if key >= row else None
    if kind == "W":
        return "I", key, 0.0
    if key >= row * (problem.pp - 1):
        return "F", key, 0.0
    return ("B" if key + row in book.at["B"] else "I"), key + row, problem.comm


def _check_memory(problem: Problem, timed: Timed) -> Iterator[Violation]:
    """Nobody holds more micro-batches than fit, from the start of F to the end of W or B."""
    if problem.memory is None:
        return
    least = _slack(problem)
    for worker, order, starts, ends in zip(
        timed.schedule.workers, timed.schedule.orders, timed.starts, timed.ends, strict=True
    ):
        cap = problem.memory[worker.stage]
        gone = sorted(end for op, end in zip(order, ends, strict=True) if op.kind in "WB")
        taken = released = 0
        for position, (op, start) in enumerate(zip(order, starts, strict=True)):
            if op.kind != "F":
                continue
            taken += 1
            # At equal times an end precedes a start.
            while released < len(gone) and gone[released] <= start + least + _FLOAT * abs(start):
                released += 1
            if taken - released > cap:
                words = f"holds {taken - released} micro-batches when {op} starts at {start:g}"
                yield _note("memory", f"{worker} {words}, expected at most {cap}", worker, position)


def _check_deadlock(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Times that fit prove that nobody waits for ever, unless operations take no time at all."""
    if all(cost > 0 for costs in problem.costs for cost in costs.each):
        return []
    try:
        time_schedule(problem, schedule)
    except InputError as error:
        return [Violation(rule="deadlock", message=str(error))]
    return []


def _slack(problem: Problem) -> float:
    """Return how much times may be off: a millionth of the shortest cost."""
    return 1e-6 * min(cost for costs in problem.costs for cost in costs.each if cost > 0)


def _durations(problem: Problem, worker: Worker) -> dict[str, float]:
    costs, speed = problem.costs[worker.stage], problem.speeds[worker.pipeline][worker.stage]
    if speed == 0:  # Nothing is there to be judged; that nothing may be was checked before.
        return {}
    each = {"F": costs.forward, "I": costs.input, "W": costs.weight, "B": costs.input + costs.weight}
    return {kind: cost / speed for kind, cost in each.items()}


# --- telling it -------------------------------------------------------------------------------


def _note(rule: Rule, message: str, worker: Worker, position: int) -> Violation:
    return Violation(rule=rule, message=message, place=Place(worker, position))


def _worker(problem: Problem, index: int) -> Worker:
    return Worker(*divmod(index, problem.pp))


def _explain(problem: Problem, timed: Timed, found: list[Violation]) -> str:
    message = _sum_up(found)
    first = next((violation for violation in found if violation.place is not None), None)
    if first is None or first.place is None or _check_rows(timed):
        return message
    return f"{message}\n{mark(problem, timed, first.place)}"


def _sum_up(found: list[Violation]) -> str:
    more = len(found) - 1
    return f"{found[0]}" + (f" (and {more:,} more violations)" if more > 1 else " (and 1 more)" * more)
