"""``holdfast plan``: the figures, the grid, the charts, or one JSON document."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.files import check_chart, one_line, write_chart
from holdfast.cli.planfile import Request, gather
from holdfast.errors import InputError
from holdfast.plan.builders import one_f_one_b
from holdfast.plan.diff import MAX_LINES
from holdfast.plan.grid import WIDTH, Grid, make_grid
from holdfast.plan.planner import FaultFree, Mode, Plan, make_plan
from holdfast.plan.problem import Problem
from holdfast.plan.summary import Figure, say_changes, say_hit, summarize
from holdfast.plan.timing import Timed, time_schedule
from holdfast.serve.svg import OP_COLOURS, OP_INK

if TYPE_CHECKING:
    from holdfast.serve.executed import Compared

STYLES = {kind: f"{OP_INK} on {colour}" for kind, colour in OP_COLOURS.items()}
TITLES: Mapping[Mode, str] = {
    "adaptive": "Adaptive plan",
    "naive": "Naive re-routing",
    "decoupled": "Decoupled backward",
    "staggered": "Decoupled backward, staggered optimizer",
}

ROLES = "Each row is a role, done by the worker that took it; a dead one is left to nobody."


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A change of role as the document has it."""

    worker: str
    to: str
    size_bytes: int | None


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``--json`` prints."""

    dp: int
    pp: int
    microbatches: int
    mode: Mode
    period: float
    makespan: float
    lower_bound: float
    fault_free: FaultFree
    plan_seconds: float
    peak_in_flight: dict[str, int]
    moves: list[Move] | None = None
    ops: list[tuple[str, str, int, int, int, float, float]]


def print_plan(flags: Mapping[str, Any], file: Path | None, charts: Sequence[Path], *, as_json: bool) -> None:
    """Plan what flags and file ask for, and show it."""
    for path in charts:
        check_chart(path)
    request = gather(flags, file)
    began_s = time.perf_counter()
    plan = make_plan(request.problem, mode=request.mode, migrate=request.migrate)
    plan_seconds = time.perf_counter() - began_s
    if charts:
        _write_charts(charts, request, plan)
    if as_json:
        document = make_document(plan, plan_seconds, migrate=request.migrate)
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    _show(request.problem, plan, plan_seconds)
    for path in charts:
        _say(Console(), f"chart written to {one_line(str(path))}")


def make_document(plan: Plan, plan_seconds: float, *, migrate: bool) -> Document:
    """Return what ``--json`` prints; times keep six decimals, and a worker that moved keeps its name."""
    problem, fault_free, holders = plan.problem, plan.fault_free, plan.holders
    moves = [Move(worker=str(m.worker), to=str(m.to), size_bytes=m.size_bytes) for m in plan.moves]
    return Document(
        dp=problem.dp,
        pp=problem.pp,
        microbatches=problem.microbatches,
        mode=plan.mode,
        period=round(plan.period, 6),
        makespan=round(plan.makespan, 6),
        lower_bound=round(plan.lower_bound, 6),
        fault_free=FaultFree(
            one_f_one_b=round(fault_free.one_f_one_b, 6), zero_bubble=round(fault_free.zero_bubble, 6)
        ),
        plan_seconds=round(plan_seconds, 6),
        peak_in_flight={str(holders[role]): peak for role, peak in plan.timed.peak_in_flight.items()},
        moves=moves if migrate else None,
        ops=[
            (str(holders[role]), *op, round(start, 6), round(end, 6))
            for role, op, start, end in plan.timed.rows()
        ],
    )


# --- for people -------------------------------------------------------------------------------


def _show(problem: Problem, plan: Plan, plan_seconds: float) -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # Raised numbers are not in every encoding.
    console = Console()
    shape = f"{problem.dp} pipelines x {problem.pp} stages x {problem.microbatches} micro-batches"
    _say(console, f"{shape}, {say_hit(problem)}; {plan.mode} plan")
    _say(console)
    _show_figures(console, [*summarize(plan), Figure("planned in", f"{plan_seconds:.3f} s")])
    for heading, lines in say_changes(plan).items():
        _say(console, f"\n{heading}:")
        for change in lines[:MAX_LINES]:
            _say(console, f"  {change}")
        if len(lines) > MAX_LINES:
            _say(console, f"  and {len(lines) - MAX_LINES:,} more")
    _say(console)
    width = console.width if console.is_terminal else WIDTH
    _show_grid(console, make_grid(plan.problem, plan.timed, width=width))
    if plan.moves:
        _say(console, ROLES, "dim")


def _show_figures(console: Console, figures: Sequence[Figure]) -> None:
    wide = max(len(figure.value) for figure in figures)
    for figure in figures:
        line = Text(figure.name.ljust(24))
        line.append(figure.value.rjust(wide), "bold")
        line.append(f"  {figure.remark}".rstrip())
        _say(console, line)


def _show_grid(console: Console, grid: Grid) -> None:
    _say(console, grid.axis.rstrip(), "dim")
    for index, row in enumerate(grid.rows):
        if grid.starts_group(index):
            _say(console)
        line = Text(row.label)
        for cell in row.cells:
            line.append(cell.text, STYLES.get(cell.kind, "dim") + (" bold underline" * cell.is_rerouted))
        line.rstrip()
        _say(console, line)
    _say(console)
    for note in (grid.legend, *grid.notes):
        _say(console, note, "dim")


def _say(console: Console, text: Text | str = "", style: str = "") -> None:
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


# --- charts -----------------------------------------------------------------------------------


def _write_charts(charts: Sequence[Path], request: Request, plan: Plan) -> None:
    from holdfast.serve.gantt import Panel, draw
    from holdfast.serve.planpage import draw_page

    panels = [
        Panel(title=title, problem=problem, timed=timed, lower_bound=bound)
        for title, problem, timed, bound in _compared(request.problem, plan)
    ]
    for path in charts:
        text = draw(panels) if path.suffix == ".svg" else draw_page(request.problem, plan, panels)
        write_chart(path, text)


def _compared(problem: Problem, plan: Plan) -> list[tuple[str, Problem, Timed, float | None]]:
    """Return what the plan is drawn beside: the job without faults, and plain re-routing."""
    healthy = problem.healthy
    rows: list[tuple[str, Problem, Timed, float | None]] = [
        ("Fault-free 1F1B", healthy, time_schedule(healthy, one_f_one_b(healthy)), None)
    ]
    if plan.mode != "naive":
        rows.append((TITLES["naive"], problem, make_plan(problem, mode="naive").timed, None))
    title = TITLES[plan.mode] + (", after changes of roles" if plan.moves else "")
    return [*rows, (title, plan.problem, plan.timed, plan.lower_bound)]


# --- a step that was executed -----------------------------------------------------------------

_RECORDED = ("dp", "pp", "microbatches", "dead", "memory", "mode", "migrate", "state-bytes")
"""What timelines say themselves, and what only a new plan could follow."""


class Recorded(NamedTuple):
    """What was executed: a folder of timelines, and the step that is meant; None: a typical one."""

    folder: Path
    step: int | None = None


def print_executed(
    recorded: Recorded, flags: Mapping[str, Any], file: Path | None, charts: Sequence[Path], *, as_json: bool
) -> None:
    """Show a step that was executed beside its plan, which is timed by the flags and the file."""
    from holdfast.serve import beside
    from holdfast.serve.gantt import draw

    for path in charts:
        check_chart(path)
    compared = _compare(recorded, flags, file)
    for path in charts:
        is_svg = path.suffix == ".svg"
        write_chart(path, draw(beside.draw_panels(compared)) if is_svg else beside.draw_page(compared))
    if as_json:
        sys.stdout.write(msgspec.json.encode(beside.make_document(compared)).decode() + "\n")
        return
    console, problem = Console(), compared.problem
    shape = f"{problem.dp} pipelines x {problem.pp} stages x {problem.microbatches} micro-batches"
    _say(console, f"{shape}, {beside.say_lead(compared)}\n")
    _show_figures(console, beside.say_figures(compared))
    _say(console, f"\n{beside.say_unit(compared)}", "dim")
    for path in charts:
        _say(console, f"chart written to {one_line(str(path))}")


def _compare(recorded: Recorded, flags: Mapping[str, Any], file: Path | None) -> Compared:
    from holdfast.job.timeline import read_timelines
    from holdfast.serve.executed import choose_step, compare

    for key in _RECORDED:
        if flags.get(key) not in (None, [], False):
            raise InputError(f"--{key} is given, but --executed {recorded.folder} says what was executed")
    try:
        executed = choose_step(read_timelines(recorded.folder), recorded.step)
    except InputError as error:
        raise InputError(f"--executed: {error}") from error
    problem = executed.problem
    shape = {"dp": problem.dp, "pp": problem.pp, "microbatches": problem.microbatches}
    dead = [str(worker) for worker in problem.workers if problem.speed(worker) == 0]
    known = {key: str(value) for key, value in shape.items()} | {"dead": dead}
    return compare(executed, gather({**flags, **known}, file).problem)
