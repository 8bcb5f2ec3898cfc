"""How close execution comes to the plan: emulated accelerators, real processes, tensors and messages.

Every operation lasts as long as the plan says, so what a step takes beyond the period of the plan is ours:
messages, reductions, optimizer, bookkeeping. All cases run in turn, several times; ratios are of medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from crew import Finished, Shape, run
from holdfast.lab.fork import Lab
from holdfast.plan.choose import choose
from holdfast.plan.planner import make_plan
from holdfast.plan.problem import Problem, Worker, make_speeds
from holdfast.plan.timing import time_schedule

SHAPE = Shape(dp=3, pp=4, microbatches=6)
SKIPPED = 6
"""First steps, in which memory is allocated and the absent worker dies."""


class Case(NamedTuple):
    """What is slow or dead, and what is done about it."""

    name: str
    arguments: tuple[str, ...]
    changed: tuple[tuple[Worker, float], ...] = ()
    fault_free: str = "zero_bubble"

    @property
    def problem(self) -> Problem:
        """What there is to plan."""
        speeds = make_speeds(SHAPE.dp, SHAPE.pp, dict(self.changed))
        return Problem(dp=SHAPE.dp, pp=SHAPE.pp, microbatches=SHAPE.microbatches, speeds=speeds)

    @property
    def planned(self) -> float:
        """Period of the plan, in operations."""
        return time_schedule(self.problem, choose(self.problem, fault_free=self.fault_free)).period


BASE = Case("without faults, 1F1B", ("--schedule", "1f1b"), fault_free="1f1b")
CASES = (
    BASE,
    Case("without faults, zero-bubble", ()),
    *(
        Case(f"worker 1.{stage} dead", ("--absent", f"1.{stage}"), ((Worker(1, stage), 0.0),))
        for stage in range(SHAPE.pp)
    ),
    Case("worker 1.2 at half speed", ("--slow", "1.2=0.5"), ((Worker(1, 2), 0.5),)),
)


def period_rows(*, turns: int, steps: int, op_ms: float) -> list[dict[str, Any]]:
    """Run all cases in turn and return one row each."""
    measured: dict[str, list[float]] = {}
    with Lab() as lab:
        for _ in range(turns):
            for case in CASES:
                measured.setdefault(case.name, []).append(_period_ms(lab, case, steps, op_ms))
    base_ms = statistics.median(measured[BASE.name])
    return [_row(case, measured[case.name], base_ms, op_ms) for case in CASES]


def _period_ms(lab: Lab, case: Case, steps: int, op_ms: float) -> float:
    arguments = ["--steps", str(steps), "--op-ms", str(op_ms), "--no-exact", "--max-norm", "0"]
    arguments += ["--width", "8", "--batch", "1", "--length", "4", *case.arguments]
    return 1000 * statistics.median(_spans(run(lab, SHAPE, arguments, timeout_s=120)))


def _spans(finished: Finished) -> Sequence[float]:
    """Seconds per step of each rank that lived to the end."""
    return [(ends[-1] - ends[SKIPPED]) / (len(ends) - 1 - SKIPPED) for ends in finished.ends_s.values()]


def _row(case: Case, measured_ms: list[float], base_ms: float, op_ms: float) -> dict[str, Any]:
    middle_ms = statistics.median(measured_ms)
    naive = make_plan(case.problem, mode="naive").makespan
    return {
        "case": case.name,
        "planned_ms": round(case.planned * op_ms),
        "measured_ms": round(middle_ms),
        "over_plan": round(middle_ms / (case.planned * op_ms), 3),
        "throughput_of_1f1b": round(base_ms / middle_ms, 3),
        "planned": round(BASE.planned / case.planned, 3),
        "naive_planned": round(BASE.planned / naive, 3),
    }
