"""``holdfast detect``: change points and slow episodes in a series of step times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.cli.files import check_chart, one_line, write_chart
from holdfast.detect.eroica import EroicaDetector
from holdfast.detect.examine import Detector, Examined, examine
from holdfast.detect.period import step_times
from holdfast.detect.steps import StepDetector
from holdfast.errors import InputError
from holdfast.findings import ChangePoint
from holdfast.observe.calls import is_table, read_calls
from holdfast.observe.series import Columns, Series, read_series
from holdfast.serve.steps import draw_steps, steps_page
from holdfast.telemetry import StepTime

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
DETECTORS: dict[str, Callable[..., Detector]] = {"bayes": StepDetector, "eroica": EroicaDetector}
_MOST_SLOW = 100.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    path: Path
    column: str | None = None
    unit: str | None = None
    step_column: str | None = None
    work_column: str | None = None
    slow: float | None = None
    method: str = "bayes"

    @property
    def columns(self) -> Columns:
        """Which columns to read, if the file is a table."""
        unit_s = None if self.unit is None else UNITS_S[self.unit]
        return Columns(time=self.column, unit_s=unit_s, step=self.step_column, work=self.work_column)


def check(request: Request) -> None:
    """Refuse options that make no sense."""
    if request.unit is not None and request.unit not in UNITS_S:
        raise InputError(f"--unit is {request.unit!r}, expected one of {', '.join(UNITS_S)}")
    if request.method not in DETECTORS:
        raise InputError(f"--method is {request.method!r}, expected one of {', '.join(DETECTORS)}")
    if request.slow is not None and not 1.0 < request.slow < _MOST_SLOW:
        raise InputError(f"--slow is {request.slow:g}, expected a factor above 1, such as 1.10")


def detect(request: Request, chart: Path | None, *, as_json: bool) -> None:
    """Read the series, find the changes, and show them."""
    if chart is not None:
        check_chart(chart)
    check(request)
    attempts = [_examine(steps, request) for steps in read_steps(request)]
    if chart is not None:
        drawing = draw_steps(attempts, request.path.name)
        write_chart(chart, steps_page(drawing, request.path.name) if chart.suffix == ".html" else drawing)
    if as_json:
        sys.stdout.write(to_json(attempts) + "\n")
        return
    _print(attempts)
    if chart is not None:
        _say(Console(), f"chart written to {one_line(str(chart))}")


def read_steps(request: Request) -> Series:
    """Return the step times of a file, also where it only has the calls of collectives."""
    calls = read_calls(request.path) if request.columns == Columns() and is_table(request.path) else None
    if calls is None:
        return read_series(request.path, request.columns)
    # All ranks make the same steps: the one with the most calls has most to tell.
    rank = max(calls, key=lambda each: len(calls[each]))
    steps = step_times([call.kind for call in calls[rank]], [call.time_s for call in calls[rank]])
    if not steps:
        raise InputError(
            f"{request.path}: the {len(calls[rank])} calls of rank {rank} repeat no pattern three times, "
            "expected the calls of some steps"
        )
    return [steps]


def _examine(steps: Sequence[StepTime], request: Request) -> Examined:
    make = DETECTORS[request.method]
    return examine(steps, make() if request.slow is None else make(slow=request.slow))


def to_json(attempts: Sequence[Examined]) -> str:
    """Return what was found as one document; attempts are counted from 1."""
    numbered = list(enumerate(attempts, start=1))
    document = {
        "change_points": [
            {**msgspec.to_builtins(each), "attempt": number}
            for number, attempt in numbered
            for each in attempt.change_points
        ],
        "episodes": [
            {**msgspec.to_builtins(each), "attempt": number}
            for number, attempt in numbered
            for each in attempt.episodes
        ],
        "healthy_s": attempts[-1].healthy_s,
        "attempts": [
            {
                "first": a.steps[0].step,
                "last": a.steps[-1].step,
                "steps": len(a.steps),
                "healthy_s": a.healthy_s,
            }
            for a in attempts
        ],
    }
    return msgspec.json.encode(document).decode()


def _print(attempts: Sequence[Examined]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    for number, attempt in enumerate(attempts, start=1):
        name = f"attempt {number} of {len(attempts)}, " if len(attempts) > 1 else ""
        _say(console, name + _verdict(attempt))
        if attempt.change_points:
            console.print(_table(attempt.change_points))


def _verdict(attempt: Examined) -> str:
    first, last = attempt.steps[0].step, attempt.steps[-1].step
    where = f"steps {first} to {last}: "
    if attempt.healthy_s is None:
        return where + "too few steps to tell"
    healthy = f"healthy step time {_seconds(attempt.healthy_s)}"
    if not attempt.episodes:
        return f"{where}never slow; {healthy}"
    spans = [
        f"{e.start} to {'now' if e.end is None else e.end - 1} ({e.slowdown:.2f} x)" for e in attempt.episodes
    ]
    times = "once" if len(spans) == 1 else f"{len(spans)} times"
    return f"{where}slow {times}: {', '.join(spans)}; {healthy}"


def _table(changes: Sequence[ChangePoint]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("from step", "known at", "", "before", "after", "change", "confidence"):
        table.add_column(name, justify="left" if name == "" else "right")
    for each in changes:
        table.add_row(
            str(each.step),
            str(each.detected_step),
            each.direction,
            _seconds(each.before_s),
            _seconds(each.after_s),
            f"{100 * (each.after_s / each.before_s - 1):+.0f} %",
            f"{each.confidence:.3f}",
        )
    return table


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def _say(console: Console, words: str) -> None:
    console.print(words, highlight=False, markup=False, soft_wrap=True)
