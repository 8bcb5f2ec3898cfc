"""A run in a few figures: how far, how fast, who takes part, and what trouble has cost."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.incidents.values import RunView
from holdfast.serve.store import RunRow
from holdfast.serve.web.views.pace import Pace
from holdfast.serve.web.views.words import say_count, say_gpu_h, say_step, say_times

_AS_USUAL = 1.05


class Figure(NamedTuple):
    """A number with its name and a remark."""

    name: str
    value: str
    note: str


def make_figures(row: RunRow, view: RunView, pace: Pace) -> list[Figure]:
    """Return the figures, in the order in which they are read."""
    bill = view.bill
    has_steps = bool(pace.points) or view.step >= 0
    return [
        Figure("step", f"{max(view.step, row.step):,}" if has_steps else "-", f"attempt {view.attempt + 1}"),
        _step_time(pace),
        _workers(row, view),
        Figure("lost", say_gpu_h(bill.lost_gpu_h), "to incidents, against a healthy job"),
        Figure("paid", say_gpu_h(bill.paid_gpu_h), "of that, for what was done"),
        Figure("saved (estimated)", say_gpu_h(bill.saved_gpu_h), "by what was done"),
    ]


def _step_time(pace: Pace) -> Figure:
    if not pace.points:
        return Figure("step time", "-", "not timed yet")
    now_s = pace.points[-1].step_s
    if not pace.usual_s:
        return Figure("step time", say_step(now_s), "median of all ranks")
    ratio = now_s / pace.usual_s
    note = "as usual" if ratio < _AS_USUAL else f"{say_times(ratio)} the usual {say_step(pace.usual_s)}"
    return Figure("step time", say_step(now_s), note)


def _workers(row: RunRow, view: RunView) -> Figure:
    gone = sum(worker.state in ("dead", "left", "hung") for worker in view.workers)
    count = f"{view.world_size - gone:,} of {view.world_size:,}" if gone else f"{view.world_size:,}"
    shape = f"{view.world_size // view.pp} x {view.pp} pipeline, " if view.pp > 1 else ""
    return Figure("workers", count, shape + say_count(view.nodes or row.nodes, "node"))
