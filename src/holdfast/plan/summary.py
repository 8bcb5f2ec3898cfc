"""A plan in a few figures and words, the same for the terminal and for a page."""

from __future__ import annotations

import msgspec

from holdfast.plan.diff import MAX_LINES, rerouted_of, say_rerouted
from holdfast.plan.grid import show
from holdfast.plan.planner import Plan
from holdfast.plan.problem import Problem

_EQUAL = 1e-9
"""Two times that differ by less than this share are the same."""


class Figure(msgspec.Struct, frozen=True):
    """One line of the summary."""

    name: str
    value: str
    remark: str = ""


def summarize(plan: Plan) -> list[Figure]:
    """Return the figures of a plan, the most important first."""
    plain, split = plan.fault_free.one_f_one_b, plan.fault_free.zero_bubble
    return [
        Figure("period", show(plan.period), _judge(plan.period, plan.lower_bound)),
        Figure("fault-free 1F1B", show(plain), _compare(plan, plain)),
        Figure("fault-free zero-bubble", show(split), _compare(plan, split)),
        Figure("makespan", show(plan.makespan), "from the first start to the last end"),
        _in_flight(plan),
    ]


def say_hit(problem: Problem, most: int = 6) -> str:
    """Say in words who is slow or dead."""
    dead = [worker for worker in problem.workers if problem.speed(worker) == 0]
    slow = [worker for worker in problem.workers if 0 < problem.speed(worker) < 1]
    slow_words = [f"{worker} at x{problem.speed(worker):.3g}" for worker in slow]
    words = [f"{_some(list(map(str, dead)), most)} dead"] * bool(dead)
    words += [f"{_some(slow_words, most)} slow" if len(slow) > most else ", ".join(slow_words)] * bool(slow)
    return "; ".join(words) or "nobody slow or dead"


def say_changes(plan: Plan, most: int = MAX_LINES) -> dict[str, list[str]]:
    """Return what is done by others than usual: under each heading that has any, one line for each."""
    rerouted = rerouted_of(plan.schedule)
    hit = [each for each in rerouted if plan.problem.speed(each.before) < 1]
    others = len(rerouted) - len(hit)
    changes = {
        "workers that change their role": [
            f"{move.worker} becomes {move.to}" + _say_bytes(move.size_bytes) for move in plan.moves
        ],
        "micro-batches that another worker does at one stage": say_rerouted(hit, most)
        + [f"{others:,} of healthy workers, to even out the load"] * (others > 0),
    }
    return {heading: lines for heading, lines in changes.items() if lines}


def _judge(period: float, bound: float) -> str:
    if period <= bound * (1 + _EQUAL):
        return f"proven optimal: the lower bound is {show(bound)}"
    return f"{100 * (period / bound - 1):.1f} % above the lower bound {show(bound)}"


def _compare(plan: Plan, other: float) -> str:
    change = plan.period / other - 1
    if abs(change) <= _EQUAL:
        return "the plan is as fast"
    return f"the plan takes {100 * abs(change):.1f} % {'longer' if change > 0 else 'less'}"


def _in_flight(plan: Plan) -> Figure:
    peaks = plan.timed.peak_in_flight
    most = max(peaks.values())
    where = [plan.holders[role] for role, peak in peaks.items() if peak == most]
    return Figure("in flight", str(most), f"micro-batches at most, on {_some(list(map(str, where)), 6)}")


def _some(words: list[str], most: int) -> str:
    """List words, or their number where there are too many."""
    return ", ".join(words) if len(words) <= most else f"{len(words):,} workers"


def _say_bytes(size_bytes: int | None) -> str:
    return f", copying {size_bytes / 1e9:.3g} GB" if size_bytes else ""
