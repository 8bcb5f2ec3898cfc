"""A step as it was executed, and the same step as it was planned: timelines in, two timed schedules out.

Both have the same operations in the same order on the same workers; only the times differ. All times are
milliseconds, from the first start of the step.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import product

import msgspec

from holdfast.errors import InputError
from holdfast.job.timeline import Row
from holdfast.plan.ops import KINDS, Schedule
from holdfast.plan.problem import Costs, Problem, Worker, make_speeds
from holdfast.plan.timing import Timed, duration, time_schedule

_LEAST_MS = 0.01
"""Finer than that is noise of the clock."""
_WHY = "a worker that is killed leaves no timeline"
Steps = Mapping[int, Mapping[int, Sequence[Row]]]
"""By step and rank, what was executed."""


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """One step that was recorded whole."""

    step: int
    alike: int
    """How many whole steps were done by the same workers in the same order."""
    is_median: bool
    """Whether this is the median of them, in length, rather than one that was asked for."""
    problem: Problem
    """The shape of the job, and who was dead."""
    timed: Timed


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it was executed and as it was planned."""

    executed: Executed
    planned: Timed
    problem: Problem
    """What was planned with, in milliseconds."""
    is_scaled: bool
    """Whether nobody said how long operations take, so that all are as long as the median was."""


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """How long the operations of one kind took, and should have taken: medians."""

    kind: str
    count: int
    executed_ms: float
    planned_ms: float

    @property
    def ratio(self) -> float | None:
        """Executed over planned; None where the plan gives them no time."""
        return self.executed_ms / self.planned_ms if self.planned_ms else None


def choose_step(steps: Steps, wanted: int | None = None) -> Executed:
    """Return the step asked for, else the median in length of those that went as the last one did."""
    shape = _shape(steps)
    whole = {step: _gather(steps[step], shape) for step in sorted(steps) if _is_whole(steps[step], shape)}
    if not whole or (wanted is not None and wanted not in whole):
        missing = "no step was" if wanted is None else f"step {wanted} was not"
        others = f"steps {min(whole)} to {max(whole)} have some that were" if whole else _WHY
        raise InputError(f"{missing} recorded whole, by every worker that took part; {others}")
    model = max(whole) if wanted is None else wanted
    alike = [step for step in whole if whole[step].schedule == whole[model].schedule]
    by_length = sorted(alike, key=lambda step: whole[step].makespan)
    step = by_length[(len(by_length) - 1) // 2] if wanted is None else wanted
    return Executed(
        step=step,
        alike=len(alike),
        is_median=wanted is None,
        problem=_problem(shape, whole[step]),
        timed=whole[step],
    )


def compare(executed: Executed, problem: Problem) -> Compared:
    """Time the step's schedule by the costs of a problem of the same shape; none given: all alike."""
    is_scaled = problem.costs == (Costs(),) * problem.pp
    if is_scaled:
        unit = statistics.median(
            (end - start) / duration(problem, op, worker) for worker, op, start, end in executed.timed.rows()
        )
        unit = max(unit, _LEAST_MS)
        costs = (Costs(unit, unit, unit),) * problem.pp
        problem = msgspec.structs.replace(problem, costs=costs)
    planned = time_schedule(problem, executed.timed.schedule)
    return Compared(executed=executed, planned=planned, problem=problem, is_scaled=is_scaled)


def durations(compared: Compared) -> list[Duration]:
    """Return the medians of every kind of operation that there is."""
    rows = compared.executed.timed.rows()
    found = []
    for kind in KINDS:
        meant = [(worker, op, end - start) for worker, op, start, end in rows if op.kind == kind]
        if meant:
            planned = [duration(compared.problem, op, worker) for worker, op, _ in meant]
            taken = statistics.median(took for _, _, took in meant)
            found.append(
                Duration(
                    kind=kind,
                    count=len(meant),
                    executed_ms=taken,
                    planned_ms=statistics.median(planned),
                )
            )
    return found


# --- from rows to a schedule ------------------------------------------------------------------

Shape = tuple[int, int, int]
"""dp, pp, micro-batches."""


def _shape(steps: Steps) -> Shape:
    ops = [op for ranks in steps.values() for rows in ranks.values() for op, _, _ in rows]
    if not ops:
        raise InputError("the timelines have no operations in them")
    return (
        1 + max(op.pipeline for op in ops),
        1 + max(op.stage for op in ops),
        1 + max(op.microbatch for op in ops),
    )


def _is_whole(ranks: Mapping[int, Sequence[Row]], shape: Shape) -> bool:
    """Say whether each micro-batch was done at each stage exactly once, by ranks of that stage."""
    dp, pp, microbatches = shape
    rows = [(rank, op) for rank, rows in ranks.items() for op, _, _ in rows]
    done: dict[tuple[int, int, int], str] = {}
    for _, op in sorted(rows, key=lambda row: row[1].kind):
        key = (op.pipeline, op.microbatch, op.stage)
        done[key] = done.get(key, "") + op.kind
    is_placed = all(0 <= rank < dp * pp and rank % pp == op.stage for rank, op in rows)
    places = product(range(dp), range(microbatches), range(pp))
    return is_placed and all(done.get(place) in ("BF", "FIW") for place in places)


def _gather(ranks: Mapping[int, Sequence[Row]], shape: Shape) -> Timed:
    dp, pp, microbatches = shape
    rows = [list(ranks.get(rank, ())) for rank in range(dp * pp)]
    first_s = min(row[0][1] for row in rows if row)

    return Timed(
        schedule=Schedule(
            dp=dp,
            pp=pp,
            microbatches=microbatches,
            orders=tuple(tuple(op for op, _, _ in row) for row in rows),
        ),
        starts=tuple(tuple(_to_ms(start_s - first_s) for _, start_s, _ in row) for row in rows),
        ends=tuple(tuple(_to_ms(end_s - first_s) for _, _, end_s in row) for row in rows),
    )


def _to_ms(duration_s: float) -> float:
    return round(1000 * duration_s, 2)  # To _LEAST_MS.


def _problem(shape: Shape, timed: Timed) -> Problem:
    dp, pp, microbatches = shape
    idle = {Worker(*divmod(rank, pp)): 0.0 for rank, order in enumerate(timed.schedule.orders) if not order}
    return Problem(dp=dp, pp=pp, microbatches=microbatches, speeds=make_speeds(dp, pp, idle))
