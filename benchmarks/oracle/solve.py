"""From a question to an answer: bounds by counting, schedules by search, until both meet or time is up."""

from __future__ import annotations

import math
import time

from msgspec.structs import replace

from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Problem
from oracle.exact import Exact, Found, Limits
from oracle.grid import Grid, load_ticks, make_grid, makespan_of, period_of, refine
from oracle.naming import Routes
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
FIRST_LOOK_S = 1.0


def solve_problem(problem: Problem, options: Options | None = None) -> Answer:
    """Return the best schedule and the best bound found in time."""
    options = options or Options()
    began = time.monotonic()
    search = _Search(problem, options, began + options.time_limit_s)
    is_free = len(options.routes) < problem.dp * problem.pp * problem.microbatches
    # With all routes given the problem is far smaller; what it finds is a good start for the other.
    routes = {**home_routes(problem), **options.routes}
    if is_free and options.hint is None:
        search.improve(routes, FIRST_LOOK_S / options.time_limit_s)
    if not search.is_tiny:
        search.count()
    if is_free and options.hint is None:
        search.improve(routes, 0.3)
    search.improve(options.routes, 0.3)
    if not search.is_tiny:
        search.count(is_close=True)
    search.improve(options.routes, 1.0)
    search.look_between()
    return replace(search.answer, seconds=time.monotonic() - began)


def lower_bound(problem: Problem, options: Options | None = None) -> float:
    """Return a value that no schedule can be below, whatever its routes; this works for larger problems.

    It is at least the load bound. It is far better where all durations are multiples of a tick of which the
    period has some hundreds at most; where they are not, finer ticks cost time and coarser ones the bound.
    With a hint it spends more time if counting in the simplest way does not lead there.
    """
    options = options or Options()
    search = _Search(problem, options, time.monotonic() + options.time_limit_s)
    search.count(share=1.0)
    if options.hint is not None:
        search.count(is_close=True, share=1.0)
    return search.answer.bound


class _Search:
    """The best answer so far, which every step can only improve; steps do nothing once it is optimal."""

    def __init__(self, problem: Problem, options: Options, until: float) -> None:
        self._problem, self._options, self._until = problem, options, until
        self._grid = make_grid(problem, options.kinds, most_ticks=FINE_TICKS)
        load = load_ticks(problem, self._grid, is_period=options.is_period) / self._grid.scale
        self.answer = Answer(best=None, bound=float(load), timed=None)
        self._most = math.inf if options.at_most is None else options.at_most
        if options.hint is not None and options.value(options.hint) <= self._most:
            self.answer = replace(self.answer, best=options.value(options.hint), timed=options.hint)

    @property
    def is_tiny(self) -> bool:
        count = self._problem.dp * self._problem.pp * self._problem.microbatches
        return count * len(self._options.kinds) <= FEW_OPS

    def improve(self, routes: Routes, share: float) -> None:
        """Look for a better schedule with these routes, for a share of the time that is left."""
        low, high = self._ticks(self.answer.bound), self._highest()
        if self.answer.is_optimal or high < low:
            return
        seconds = min(share, 1.0) * self._left()
        limits = Limits(low=low, high=high, seconds=seconds, threads=self._options.threads)
        model = Exact(self._problem, self._grid, routes, is_period=self._options.is_period)
        found = model.solve(limits, self.answer.timed)
        # If no more was proven than the solver was told, or only for some routes, that is no news.
        if found.least > low and routes == self._options.routes:
            self._raise_bound(self._grid, found.least)
        self._take(found.schedule)

    def count(self, *, is_close: bool = False, share: float = 0.4) -> None:
        """Prove a bound by counts, for a share of the time that is left."""
        grid = make_grid(self._problem, self._options.kinds, most_ticks=COARSE_TICKS)
        if self.answer.is_optimal or grid.loss > MOST_LOSS:
            return
        effort = Effort(seconds=share * self._left(), threads=self._options.threads, most=self._open(grid))
        is_period = self._options.is_period
        if not is_close:
            least = bound_ticks(self._problem, grid, effort, is_period=is_period).least
        elif effort.most is not None:
            least = math.ceil(self.answer.bound * grid.scale - TOLERANCE)
            effort = replace(effort, least=least)
            least = tighten_ticks(self._problem, grid, effort, is_period=is_period)
        else:
            return
        self._raise_bound(grid, least)

    def look_between(self) -> None:
        """Look for periods where no tick is left between bound and best, but perhaps something else.

        All values left lie on grids with up to pp parts per tick. Grids with at most half of pp parts are
        contained in others.
        """
        while self._is_between():
            best, bounds = self.answer.best, []
            for parts in range(self._problem.pp // 2 + 1, self._problem.pp + 1):
                finer = refine(self._grid, parts)
                found = self._search_on(finer)
                self._take(found.schedule)
                bounds.append(float(found.least / finer.scale))
                if self.answer.best != best:
                    break
            else:
                self.answer = replace(self.answer, bound=max(self.answer.bound, min(bounds)))
                return

    def _is_between(self) -> bool:
        best, bound = self.answer.best, self.answer.bound
        if best is None or self.answer.is_optimal or self._grid.loss > 0 or not self._options.is_period:
            return False
        return (best - bound) * self._grid.scale < 1

    def _search_on(self, grid: Grid) -> Found:
        """Look for a schedule that is better than the best, unless counts prove that there is none."""
        known = (self.answer.bound, self.answer.best or 0.0)
        low, best = (math.ceil(value * grid.scale - TOLERANCE) for value in known)
        threads = self._options.threads
        if not self.is_tiny and load_ticks(self._problem, grid) <= COARSE_TICKS * self._problem.pp:
            effort = Effort(seconds=self._left() / 2, threads=threads, least=low, most=best - 1)
            effort = replace(effort, least=bound_ticks(self._problem, grid, effort, is_period=True).least)
            low = tighten_ticks(self._problem, grid, effort, is_period=True)
        if low >= best:
            return Found(schedule=None, least=best)
        limits = Limits(low=low, high=best - 1, seconds=self._left() / 2, threads=threads)
        return Exact(self._problem, grid, self._options.routes, is_period=True).solve(limits)

    def _take(self, schedule: Schedule | None) -> None:
        if schedule is None:
            return
        timed = best_times(self._problem, schedule, is_period=self._options.is_period)
        value = self._options.value(timed)
        if value <= self._most * (1 + TOLERANCE) and (self.answer.best is None or value < self.answer.best):
            self.answer = replace(self.answer, best=value, timed=timed)

    def _raise_bound(self, grid: Grid, ticks: int) -> None:
        is_period = self._options.is_period
        bound = period_of(self._problem, grid, ticks) if is_period else makespan_of(grid, ticks)
        self.answer = replace(self.answer, bound=max(self.answer.bound, bound))

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _ticks(self, value: float) -> int:
        return math.ceil(value * self._grid.scale - TOLERANCE)

    def _highest(self) -> int:
        """Return the ticks above which nobody has to look."""
        known = self._most if self.answer.best is None else self.answer.best
        if known < math.inf:
            return self._ticks(known)
        slowest = [
            max(self._grid.whole(stage, pipeline) for pipeline in self._problem.live(stage))
            for stage in range(self._problem.pp)
        ]
        one_by_one = sum(slowest) + 2 * self._grid.comm * self._problem.pp
        return one_by_one * self._problem.dp * self._problem.microbatches

    def _open(self, grid: Grid) -> int | None:
        """Return the most ticks for which it is open whether there are schedules."""
        if self.answer.best is not None:
            return math.ceil(self.answer.best * grid.scale - TOLERANCE) - 1
        return None if self._most == math.inf else math.floor(self._most * grid.scale + TOLERANCE)
