"""From a question to an answer: bounds by counting, schedules by search, until both meet or time is up."""

from __future__ import annotations

import math
import time

from msgspec.structs import replace

from holdfast.plan.problem import Problem
from oracle.exact import Exact, Found, Limits
from oracle.grid import Grid, load_ticks, make_grid, makespan_of, period_of, refine
from oracle.options import TOLERANCE, Answer, Options
from oracle.relaxed import Effort, bound_ticks, tighten_ticks
from oracle.retime import best_times
from oracle.routing import home_routes

FINE_TICKS = 10**8
COARSE_TICKS = 400
"""Most ticks in the load bound: of the schedule, and of the counts, whose model grows with them."""
MOST_LOSS = 0.05
"""Counts are not worth their time if rounding takes more than this share of a duration."""
FEW_OPS = 40
"""So few operations are faster to schedule than to count."""


def solve_problem(problem: Problem, options: Options | None = None) -> Answer:
    """Return the best schedule and the best bound found in time."""
    options = options or Options()
    began = time.monotonic()
    until = began + options.time_limit_s
    bound = _bound_for(problem, replace(options, hint=None), until)
    if options.hint is None and len(options.routes) < problem.dp * problem.pp * problem.microbatches:
        # With all routes given the problem is far smaller; what it finds is a good start for the other.
        routed = replace(options, routes={**home_routes(problem), **options.routes})
        options = replace(options, hint=_improve(problem, routed, bound, _part(until, 0.3)).timed)
    answer = _improve(problem, options, bound, _part(until, 0.3))
    if not answer.is_optimal:
        # Either there is something better to find, or more to prove.
        options = replace(options, hint=answer.timed or options.hint)
        bound = max(answer.bound, _bound_for(problem, options, until))
        answer = _improve(problem, options, bound, until)
    if options.is_period:
        answer = _look_between(problem, options, answer, until)
    return replace(answer, seconds=time.monotonic() - began)


def lower_bound(problem: Problem, options: Options | None = None) -> float:
    """Return a value that no schedule can be below, whatever its routes; this works for larger problems.

    It is at least the load bound. It is far better where all durations are multiples of a tick of which the
    period has some hundreds at most; where they are not, finer ticks cost time and coarser ones the bound.
    With a hint it spends more time if counting in the simplest way does not lead there.
    """
    options = options or Options()
    load = _load(problem, options)
    grid = make_grid(problem, options.kinds, most_ticks=COARSE_TICKS)
    if grid.loss > MOST_LOSS:
        return load
    until = time.monotonic() + options.time_limit_s
    most = _most_ticks(grid, options)
    effort = Effort(seconds=options.time_limit_s, threads=options.threads, most=most)
    least = bound_ticks(problem, grid, effort, is_period=options.is_period).least
    if most is not None and options.hint is not None:
        effort = replace(effort, seconds=until - time.monotonic(), least=least)
        least = tighten_ticks(problem, grid, effort, is_period=options.is_period)
    return max(load, _to_time(problem, grid, least, options))


def _bound_for(problem: Problem, options: Options, until: float) -> float:
    """Return what a part of the time is enough to prove."""
    if _is_tiny(problem, options):
        return _load(problem, options)
    return lower_bound(problem, replace(options, time_limit_s=_part(until, 0.4) - time.monotonic()))


def _load(problem: Problem, options: Options) -> float:
    grid = make_grid(problem, options.kinds, most_ticks=FINE_TICKS)
    return float(load_ticks(problem, grid) / grid.scale)


def _part(until: float, share: float) -> float:
    """Return when a share of the time that is left will be over."""
    now = time.monotonic()
    return now + share * (until - now)


def _is_tiny(problem: Problem, options: Options) -> bool:
    return problem.dp * problem.pp * problem.microbatches * len(options.kinds) <= FEW_OPS


def _improve(problem: Problem, options: Options, bound: float, until: float) -> Answer:
    """Return the best schedule for the routes that are given, which may be the one to start from."""
    start = _start(options, bound)
    grid = make_grid(problem, options.kinds, most_ticks=FINE_TICKS)
    low, high = _range(problem, grid, options, bound)
    if start.is_optimal or high < low:
        return start
    limits = Limits(low=low, high=high, seconds=until - time.monotonic(), threads=options.threads)
    found = Exact(problem, grid, options.routes, is_period=options.is_period).solve(limits, start.timed)
    if found.least > low:  # Else the solver knows no more than it was told.
        bound = max(bound, _to_time(problem, grid, found.least, options))
    if found.schedule is None:
        return replace(start, bound=bound)
    timed = best_times(problem, found.schedule, is_period=options.is_period)
    best = options.value(timed)
    is_better = start.best is None or best < start.best
    return Answer(best=best, bound=bound, timed=timed) if is_better else replace(start, bound=bound)


def _start(options: Options, bound: float) -> Answer:
    most = math.inf if options.at_most is None else options.at_most
    if options.hint is None or options.value(options.hint) > most:
        return Answer(best=None, bound=bound, timed=None)
    return Answer(best=options.value(options.hint), bound=bound, timed=options.hint)


def _known(options: Options) -> float | None:
    """Return the value above which nobody has to look, if there is one."""
    values = [] if options.at_most is None else [options.at_most]
    return min(values if options.hint is None else [*values, options.value(options.hint)], default=None)


def _most_ticks(grid: Grid, options: Options) -> int | None:
    """Return up to where it is open whether there are schedules: below the hint, not above ``at_most``."""
    ends = [] if options.at_most is None else [math.floor(options.at_most * grid.scale + TOLERANCE)]
    if options.hint is not None:
        ends.append(math.ceil(options.value(options.hint) * grid.scale - TOLERANCE) - 1)
    return min(ends, default=None)


def _range(problem: Problem, grid: Grid, options: Options, bound: float) -> tuple[int, int]:
    low = max(load_ticks(problem, grid), math.ceil(bound * grid.scale - TOLERANCE))
    known = _known(options)
    if known is not None:
        return low, math.ceil(known * grid.scale - TOLERANCE)
    slowest = [
        max(grid.whole(stage, pipeline) for pipeline in problem.live(stage)) for stage in range(problem.pp)
    ]
    one_by_one = sum(slowest) + 2 * grid.comm * problem.pp
    return low, one_by_one * problem.dp * problem.microbatches


def _to_time(problem: Problem, grid: Grid, ticks: int, options: Options) -> float:
    return period_of(problem, grid, ticks) if options.is_period else makespan_of(grid, ticks)


def _look_between(problem: Problem, options: Options, answer: Answer, until: float) -> Answer:
    """Return a better bound or schedule where there is no tick between the two, but perhaps something else.

    All values left lie on grids with up to pp parts per tick. Grids with at most half of pp parts are
    contained in others.
    """
    grid = make_grid(problem, options.kinds, most_ticks=FINE_TICKS)
    if grid.loss > 0 or answer.best is None or answer.is_optimal:
        return answer
    if (answer.best - answer.bound) * grid.scale >= 1:
        return answer
    bound = answer.best
    for parts in range(problem.pp // 2 + 1, problem.pp + 1):
        finer = refine(grid, parts)
        found = _search_between(problem, options, finer, answer, until)
        if found.schedule is not None:
            timed = best_times(problem, found.schedule, is_period=True)
            better = replace(answer, best=timed.period, timed=timed)
            return _look_between(problem, options, better, until)
        bound = min(bound, float(found.least / finer.scale))
    return replace(answer, bound=max(bound, answer.bound))


def _search_between(problem: Problem, options: Options, grid: Grid, answer: Answer, until: float) -> Found:
    """Look for a schedule that is better than the best, unless counts prove that there is none."""
    low, best = (math.ceil(value * grid.scale - TOLERANCE) for value in (answer.bound, answer.best or 0.0))
    if not _is_tiny(problem, options) and load_ticks(problem, grid) <= COARSE_TICKS * problem.pp:
        seconds = (until - time.monotonic()) / 2
        effort = Effort(seconds=seconds, threads=options.threads, least=low, most=best - 1)
        effort = replace(effort, least=bound_ticks(problem, grid, effort, is_period=True).least)
        low = tighten_ticks(problem, grid, effort, is_period=True)
    if low >= best:
        return Found(schedule=None, least=best)
    limits = Limits(low=low, high=best - 1, seconds=(until - time.monotonic()) / 2, threads=options.threads)
    return Exact(problem, grid, options.routes, is_period=True).solve(limits)
