"""Whole ticks instead of times, since the solver knows integers only, and the way back.

A grid is exact when all durations are multiples of one tick. Otherwise every duration is rounded down: each
real schedule is then one on the grid too, so what no schedule on the grid can beat, no real one can. Costs,
speeds and comm are taken as the decimals they were written as, to a millionth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import msgspec

from holdfast.plan.problem import Problem

_DIGITS = 10**6


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """How many ticks everything takes."""

    scale: Fraction
    """Ticks per unit of time."""
    kinds: str
    """``FIW`` when backward is split, ``FB`` when it is not."""
    ticks: dict[tuple[str, int, int], int]
    """By kind, stage and the pipeline of a live worker."""
    comm: int
    loss: float = 0.0
    """The largest share of a duration that rounding takes away; 0 if the grid is exact."""
    step: int = 1
    """All ticks are multiples of it."""

    @property
    def last(self) -> str:
        """What frees the memory of a micro-batch."""
        return self.kinds[-1]

    def least(self, kind: str, stage: int) -> int:
        """What an operation takes on the fastest worker of its stage."""
        return min(ticks for (its, at, _), ticks in self.ticks.items() if (its, at) == (kind, stage))

    def whole(self, stage: int, pipeline: int) -> int:
        """What one micro-batch takes altogether on a worker."""
        return sum(self.ticks[kind, stage, pipeline] for kind in self.kinds)


def make_grid(problem: Problem, kinds: str, *, most_ticks: int) -> Grid:
    """Return the exact grid if the load bound has at most so many ticks on it, else the least lossy one."""
    times = _times(problem, kinds)
    comm = _exact(problem.comm)
    scale = 1 / _common_unit([*times.values(), comm])
    exact = Grid(scale=scale, kinds=kinds, ticks=_round(times, scale), comm=math.floor(comm * scale))
    load = load_ticks(problem, exact) / scale
    if load * scale <= most_ticks:
        return exact
    lengths = sorted({time for time in [*times.values(), comm] if time})
    fewest = max(most_ticks // 2, most_ticks - 500)
    scales = [Fraction(ticks) / load for ticks in range(fewest, most_ticks + 1)]
    scale = min(scales, key=lambda each: (round(_loss(lengths, each), 4), each))
    ticks, loss = _round(times, scale), _loss(lengths, scale)
    return Grid(scale=scale, kinds=kinds, ticks=ticks, comm=math.floor(comm * scale), loss=loss)


def refine(grid: Grid, factor: int) -> Grid:
    """Return the same durations counted in smaller ticks, so that waiting can be finer than work."""
    ticks = {key: ticks * factor for key, ticks in grid.ticks.items()}
    step, comm = grid.step * factor, grid.comm * factor
    return msgspec.structs.replace(grid, scale=grid.scale * factor, ticks=ticks, comm=comm, step=step)


def load_ticks(problem: Problem, grid: Grid, *, is_period: bool = True) -> int:
    """Return the least time that the work of a stage takes; for the makespan, with the way there and back."""
    return max(
        stage_ticks(problem, grid, stage) + (0 if is_period else _way(grid, stage))
        for stage in range(problem.pp)
    )


def stage_ticks(problem: Problem, grid: Grid, stage: int, kinds: str = "FIWB") -> int:
    """Return the least time that one stage needs for its operations of these kinds."""
    kinds = "".join(kind for kind in grid.kinds if kind in kinds)
    lasts = [sum(grid.ticks[kind, stage, pipeline] for kind in kinds) for pipeline in problem.live(stage)]
    return _share_out(problem.dp * problem.microbatches, lasts)


def latest_start(problem: Problem, grid: Grid, period: int) -> int:
    """Return the last tick at which a stage can start, if stage 0 starts at 0 and must end within the period.

    All forwards and backwards of that stage come after its start, and then the way back to stage 0.
    """
    back = grid.kinds[1]
    latest, way = 0, sum(grid.least(kind, 0) for kind in grid.kinds[2:])
    for stage in range(1, problem.pp):
        way += grid.least(back, stage - 1) + grid.comm
        latest = max(latest, period - way - stage_ticks(problem, grid, stage, f"F{back}"))
    return latest


def _way(grid: Grid, stage: int) -> int:
    """Return how long before a stage can start, and how long after its last backward others have work."""
    there = sum(grid.least("F", other) + grid.comm for other in range(stage))
    if grid.last == "W":  # The busiest worker may end with W, which nobody waits for.
        return there
    return there + sum(grid.least("B", other) + grid.comm for other in range(stage))


def period_of(problem: Problem, grid: Grid, ticks: int) -> float:
    """Return the least period that a schedule can have if on the grid none has fewer than these ticks.

    Times off the grid can be better. Rounding all starts of a schedule down keeps it valid and makes no span
    longer than its next whole tick, so the best period is above ``ticks - 1``. For the best order of work it
    is the largest mean of a cycle through at most pp stages, of which every edge is a multiple of ``step``:
    a multiple of step / q with q up to pp.
    """
    bounds = [
        Fraction((ticks - 1) * parts // grid.step + 1, parts) * grid.step
        for parts in range(1, problem.pp + 1)
    ]
    return float(min(bounds) / grid.scale)


def makespan_of(grid: Grid, ticks: int) -> float:
    """Return the least makespan likewise; it is one chain of work, so a multiple of ``step``."""
    return float(-(-ticks // grid.step) * grid.step / grid.scale)


def _times(problem: Problem, kinds: str) -> dict[tuple[str, int, int], Fraction]:
    times: dict[tuple[str, int, int], Fraction] = {}
    for stage, costs in enumerate(problem.costs):
        forward, toward_input, toward_weight = map(_exact, costs.each)
        each = {"F": forward, "I": toward_input, "W": toward_weight, "B": toward_input + toward_weight}
        for pipeline in problem.live(stage):
            speed = _exact(problem.speeds[pipeline][stage])
            times |= {(kind, stage, pipeline): each[kind] / speed for kind in kinds}
    return times


def _exact(number: float) -> Fraction:
    near = Fraction(number).limit_denominator(_DIGITS)
    return near if math.isclose(near, number, rel_tol=1e-12) else Fraction(number)


def _common_unit(times: Iterable[Fraction]) -> Fraction:
    lengths = [time for time in times if time]
    bottom = math.lcm(*(time.denominator for time in lengths))
    return Fraction(math.gcd(*(int(time * bottom) for time in lengths)), bottom)


def _round(times: dict[tuple[str, int, int], Fraction], scale: Fraction) -> dict[tuple[str, int, int], int]:
    return {key: math.floor(time * scale) for key, time in times.items()}


def _loss(lengths: Iterable[Fraction], scale: Fraction) -> float:
    """Return the largest share of a duration that rounding takes away."""
    return max(float(1 - math.floor(length * scale) / (length * scale)) for length in lengths)


def _share_out(count: int, lasts: list[int]) -> int:
    """Return the least time in which workers that need so long for each piece do so many of them."""
    low, high = 0, min(lasts) * count
    while low < high:
        middle = (low + high) // 2
        if min(lasts) == 0 or sum(middle // each for each in lasts) >= count:
            high = middle
        else:
            low = middle + 1
    return low
