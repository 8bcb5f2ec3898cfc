"""A step as it was executed beside its plan: in words, as a document, as two charts on one scale of time."""

from __future__ import annotations

import msgspec

from holdfast.plan.grid import MEANINGS, show
from holdfast.plan.summary import Figure, say_hit
from holdfast.serve.executed import Compared, durations
from holdfast.serve.gantt import Panel
from holdfast.serve.planpage import Words, make_page


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A time as it was executed and as it was planned, in milliseconds."""

    executed: float
    planned: float


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints with ``--executed``."""

    step: int
    dp: int
    pp: int
    microbatches: int
    dead: list[str]
    period: Pair
    makespan: Pair
    medians: dict[str, Pair]
    """By kind of operation."""
    ops: list[tuple[str, str, int, int, int, float, float, float, float]]
    """Worker, kind, home pipeline, micro-batch, stage; start and end as executed, then as planned."""


def make_document(compared: Compared) -> Document:
    """Return the comparison for programs; times keep three decimals."""
    problem, timed, planned = compared.problem, compared.executed.timed, compared.planned
    return Document(
        step=compared.executed.step,
        dp=problem.dp,
        pp=problem.pp,
        microbatches=problem.microbatches,
        dead=[str(worker) for worker in problem.workers if problem.speed(worker) == 0],
        period=_pair(timed.period, planned.period),
        makespan=_pair(timed.makespan, planned.makespan),
        medians={each.kind: _pair(each.executed_ms, each.planned_ms) for each in durations(compared)},
        ops=[
            (str(worker), *op, start, end, round(planned_start, 3), round(planned_end, 3))
            for (worker, op, start, end), (_, _, planned_start, planned_end) in zip(
                timed.rows(), planned.rows(), strict=True
            )
        ],
    )


def say_lead(compared: Compared) -> str:
    """Say in a line what is compared."""
    return f"{say_hit(compared.problem)}; step {compared.executed.step} as executed, beside its plan"


def say_figures(compared: Compared) -> list[Figure]:
    """Return what is to be said, the most important first."""
    executed, timed, planned = compared.executed, compared.executed.timed, compared.planned
    which = "the median in length" if executed.is_median else "one"
    alike = f"{which} of {executed.alike} recorded with this schedule"
    return [
        Figure("step", str(executed.step), alike),
        _beside("period", timed.period, planned.period),
        _beside("makespan", timed.makespan, planned.makespan),
        *(
            _beside(f"{each.kind} {MEANINGS[each.kind]}", each.executed_ms, each.planned_ms, each.count)
            for each in durations(compared)
        ),
    ]


def say_unit(compared: Compared) -> str:
    """Say where the planned times come from."""
    if compared.is_scaled:
        return (
            "planned: every operation as long as the median was, B twice; --costs F,I,W in ms replaces that"
        )
    return "planned: by the costs given, in ms"


def draw_panels(compared: Compared) -> list[Panel]:
    """Return the two panels, the planned step first."""
    step = compared.executed.step
    return [
        Panel(title=f"Step {step} as planned, in ms", problem=compared.problem, timed=compared.planned),
        Panel(
            title=f"Step {step} as executed, in ms",
            problem=compared.problem,
            timed=compared.executed.timed,
        ),
    ]


def draw_page(compared: Compared) -> str:
    """Return the comparison as a page."""
    unit = say_unit(compared)
    words = Words(
        lead=say_lead(compared), figures=say_figures(compared), note=f"{unit[:1].upper()}{unit[1:]}."
    )
    return make_page(compared.problem, draw_panels(compared), words)


def _pair(executed: float, planned: float) -> Pair:
    return Pair(executed=round(executed, 3), planned=round(planned, 3))


def _beside(name: str, executed: float, planned: float, count: int | None = None) -> Figure:
    remark = f"planned {show(round(planned, 2))} ms"
    remark += f", x{executed / planned:.2f}" if planned else ""
    remark += f", median of {count}" if count is not None else ""
    return Figure(name, f"{show(round(executed, 2))} ms", remark)
