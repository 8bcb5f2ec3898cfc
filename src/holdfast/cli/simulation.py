"""``holdfast simulate``: what strategies make of a failure trace, as a table, a figure or JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from holdfast.cli.files import check_chart, one_line, write_chart
from holdfast.cli.quantities import show_duration
from holdfast.cli.scenario import Request, gather
from holdfast.serve.throughput import draw_study, study_page
from holdfast.simulate.study import Result, Study, conduct
from holdfast.simulate.traces import Trace

COLUMNS = ("samples/s", "share", "compute", "fail", "join", "save", "redo", "stop")
LEGEND = (
    "share: of fault-free; then, of the wall clock: computing, pauses for failures and for joins, saving "
    "checkpoints, work done again, stopped"
)


def simulate(request: Request, chart: Path | None, *, as_json: bool, explain: bool) -> None:
    """Run the strategies through the trace and show what came of it."""
    if chart is not None:
        check_chart(chart)
    scenario = gather(request)
    fitted = scenario.fitted
    with _Bars(fitted.duration_s, is_quiet=as_json) as bars:
        study = conduct(scenario.model, scenario.periods, fitted, scenario.names, bars.update)
    story = f"{scenario.trace.origin}; {show_duration(fitted.duration_s)}; {fitted.rule}"
    if chart is not None:
        drawing = draw_study(study, story)
        write_chart(chart, study_page(study, drawing) if chart.suffix == ".html" else drawing)
    if as_json:
        sys.stdout.write(to_json(study, scenario.trace) + "\n")
        return
    _print_study(study, story, explain=explain)
    if chart is not None:
        _say(Console(), f"chart written to {one_line(str(chart))}")


def to_json(study: Study, trace: Trace) -> str:
    """Return the study as one document."""
    model, fitted = study.model, study.fitted
    document = {
        "model": model.name,
        "workers": model.workers,
        "pp": model.pp,
        "dp": model.dp,
        "microbatches": study.microbatches,
        "memory": study.memory,
        "fault_free_throughput": model.throughput,
        "trace": {
            "origin": trace.origin,
            "fitted": fitted.rule,
            "duration_s": fitted.duration_s,
            "workers_lost": fitted.failures,
        },
        "strategies": [_to_dict(study, result) for result in study.results],
    }
    return msgspec.json.encode(document).decode()


def _to_dict(study: Study, result: Result) -> dict[str, Any]:
    outcome = result.outcome
    if outcome is None:
        return {"name": result.name, "missing": result.missing}
    return {
        "name": result.name,
        "throughput": outcome.throughput,
        "share_of_fault_free": study.share(outcome),
        "spent": outcome.spent,
        "failures": outcome.failures,
        "joins": outcome.joins,
        "series": outcome.series,
        "modelled": result.modelled,
    }


class _Bars:
    """One progress bar per strategy, on a terminal only."""

    def __init__(self, duration_s: float, *, is_quiet: bool) -> None:
        console = Console(stderr=True)
        self._duration_s = duration_s
        is_hidden = is_quiet or not console.is_terminal
        self._progress = Progress(console=console, disable=is_hidden, transient=True)
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, name: str, at_s: float) -> None:
        """Move one bar to the time that its strategy has reached."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=self._duration_s)
        self._progress.update(self._tasks[name], completed=at_s)


def _print_study(study: Study, story: str, *, explain: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    for line in (study.job, story):
        _say(console, line)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # Narrow enough for 80 columns.
    table.add_column("strategy")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for result in study.results:
        table.add_row(*_row(study, result), style="bold" if result.name == "holdfast" else None)
    console.print(table)
    console.print(LEGEND, style="dim", highlight=False)
    for result in study.results:
        if result.missing:
            _say(console, f"{result.name}: {result.missing}", "dim")
        elif explain:
            _say(console, f"{result.name}: {result.modelled}")


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(line, style=style, highlight=False, soft_wrap=True, markup=False)


def _row(study: Study, result: Result) -> list[str]:
    outcome = result.outcome
    if outcome is None:
        return [result.name, *("" for _ in COLUMNS)]
    shares = [seconds / outcome.duration_s for seconds in msgspec.structs.astuple(outcome.spent)]
    return [
        result.name,
        f"{outcome.throughput:.3g}",
        f"{study.share(outcome):.1%}",
        *(f"{share:.1%}" if share > 0 else "" for share in shares),
    ]
