"""When every operation of a schedule runs: each starts as soon as its worker and what it needs are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import InputError
from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Problem, Worker


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its times: ``starts[w][n]`` and ``ends[w][n]`` belong to ``schedule.orders[w][n]``."""

    schedule: Schedule
    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]

    def rows(self) -> list[tuple[Worker, Op, float, float]]:
        """Every operation with its worker, start and end; worker by worker, in the order of execution."""
        return [
            (worker, op, start, end)
            for worker, ops, starts, ends in zip(
                self.schedule.workers, self.schedule.orders, self.starts, self.ends, strict=True
            )
            for op, start, end in zip(ops, starts, ends, strict=True)
        ]

    @property
    def makespan(self) -> float:
        """Last end minus first start."""
        return max(ends[-1] for ends in self.ends if ends) - min(row[0] for row in self.starts if row)

    @property
    def spans(self) -> tuple[float, ...]:
        """Per stage, last end minus first start over the workers of that stage."""
        pp = self.schedule.pp
        return tuple(
            max(ends[-1] for ends in self.ends[stage::pp] if ends)
            - min(starts[0] for starts in self.starts[stage::pp] if starts)
            for stage in range(pp)
        )

    @property
    def period(self) -> float:
        """How often a step can be repeated when each stage begins the next one as soon as it is done."""
        return max(self.spans)

    @property
    def peak_in_flight(self) -> dict[Worker, int]:
        """Per worker, the most micro-batches held at once, from the start of F to the end of W or B."""
        return {
            worker: peak_of(order)
            for worker, order in zip(self.schedule.workers, self.schedule.orders, strict=True)
        }


def duration(problem: Problem, op: Op, worker: Worker) -> float:
    """How long an operation takes on a worker: its cost over the worker's speed."""
    costs = problem.costs[op.stage]
    cost = {"F": costs.forward, "I": costs.input, "W": costs.weight, "B": costs.input + costs.weight}[op.kind]
    return cost / problem.speed(worker)


def peak_of(order: Sequence[Op]) -> int:
    """The most micro-batches one worker holds at once; its operations never overlap, so order is enough."""
    held = peak = 0
    for op in order:
        if op.kind == "F":
            held += 1
            peak = max(peak, held)
        elif op.kind in "WB":
            held -= 1
    return peak


def time_schedule(problem: Problem, schedule: Schedule, releases: Sequence[float] = ()) -> Timed:
    """Return the earliest times that respect the order of every worker, and no stage before its release."""
    workers = schedule.workers
    free = [releases[worker.stage] if releases else 0.0 for worker in workers]
    starts: list[list[float]] = [[] for _ in workers]
    ends: list[list[float]] = [[] for _ in workers]
    arrivals: dict[Need, float] = {}
    waiting: dict[Need, int] = {}
    todo = list(range(len(workers) - 1, -1, -1))
    while todo:
        index = todo.pop()
        order = schedule.orders[index]
        for op in order[len(starts[index]) :]:
            need = needed_by(op)
            if need is not None and need not in arrivals:
                waiting[need] = index
                break
            start = free[index] if need is None else max(free[index], arrivals[need])
            free[index] = end = start + duration(problem, op, workers[index])
            starts[index].append(start)
            ends[index].append(end)
            made = made_by(op, schedule.pp)
            if made is not None:
                arrivals[made] = end + (problem.comm if made.stage != op.stage else 0.0)
                if made in waiting:
                    todo.append(waiting.pop(made))
    if waiting:
        raise InputError(_stuck(schedule, starts, waiting))
    return Timed(schedule=schedule, starts=tuple(map(tuple, starts)), ends=tuple(map(tuple, ends)))


class Need(NamedTuple):
    """Something that travels: an activation on its way to a forward, or a gradient to a backward."""

    is_gradient: bool
    stage: int
    """Where it is used."""
    pipeline: int
    microbatch: int


def needed_by(op: Op) -> Need | None:
    """What an operation waits for besides its worker; W only follows its I, which the same worker did."""
    if op.kind == "W" or (op.kind == "F" and op.stage == 0):
        return None
    return Need(op.kind != "F", op.stage, op.pipeline, op.microbatch)


def made_by(op: Op, pp: int) -> Need | None:
    """What an operation leaves for another; the last stage's forward leaves the loss for its own backward."""
    if op.kind == "F":
        is_last = op.stage == pp - 1
        return Need(is_last, op.stage + (not is_last), op.pipeline, op.microbatch)
    if op.kind == "W" or op.stage == 0:
        return None
    return Need(True, op.stage - 1, op.pipeline, op.microbatch)


def _stuck(schedule: Schedule, starts: list[list[float]], waiting: dict[Need, int]) -> str:
    """Tell who waits for whom, until the circle closes or somebody waits for what nobody makes."""
    left = [order[len(done) :] for order, done in zip(schedule.orders, starts, strict=True)]
    makers = {made_by(op, schedule.pp): index for index, order in enumerate(left) for op in order}
    needs = {index: need for need, index in waiting.items()}
    index = min(needs)
    chain: list[int] = []
    while index in needs and index not in chain:
        chain.append(index)
        index = makers.get(needs[index], -1)
    circle = chain[chain.index(index) :] if index in chain else chain
    names = [str(schedule.workers[each]) for each in circle]
    after = [*names[1:], names[0] if index in chain else "what nobody makes"]
    steps = [
        f"{name} waits with {left[each][0]} for {other}"
        for each, name, other in zip(circle, names, after, strict=True)
    ]
    more = ", …" if len(steps) > 6 else ""
    return f"the schedule deadlocks: {', '.join(steps[:6])}{more}"
