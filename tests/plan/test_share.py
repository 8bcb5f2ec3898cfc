"""Shares are compared with the best of all splits there are."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.plan.problem import Problem
from holdfast.plan.share import even_shares, fast_shares, loosened, smallest_worst, split
from problems import SPEEDS, problems
from schedules import make_problem

FLOAT = 1 + 1e-8


def _splits(total: int, parts: int, at_least: int = 0) -> Iterator[tuple[int, ...]]:
    """All ways to share a total."""
    if parts == 1:
        yield from [(total,)] if total >= at_least else []
        return
    for first in range(at_least, total + 1):
        for rest in _splits(total - first, parts - 1, at_least):
            yield (first, *rest)


def _worst(counts: tuple[int, ...] | list[int], speeds: list[float], overhead: float) -> float:
    return max((count + overhead) / speed for count, speed in zip(counts, speeds, strict=True))


def _used(counts: tuple[int, ...] | list[int], speeds: list[float], overhead: float) -> float:
    """The worst time of those that take anything: a part without work pays no overhead either."""
    each = zip(counts, speeds, strict=True)
    return max(((count + overhead) / speed for count, speed in each if count), default=0.0)


@given(
    st.integers(0, 9),
    st.lists(st.sampled_from(SPEEDS), min_size=1, max_size=4).filter(any),
    st.sampled_from((0.0, 0.5, 1.0, 3.0, 7.0)),
    st.sampled_from((0, 0, 1, 2)),
)
def test_no_split_is_better(total: int, speeds: list[float], overhead: float, at_least: int) -> None:
    """The split sums up, gives the dead none and the others enough, and its worst time is the smallest."""
    live = [speed for speed in speeds if speed > 0]
    assume(total >= at_least * len(live))
    counts = split(total, speeds, overhead=overhead, at_least=at_least)
    assert sum(counts) == total
    assert all(count == 0 for count, speed in zip(counts, speeds, strict=True) if speed == 0)
    mine = [count for count, speed in zip(counts, speeds, strict=True) if speed > 0]
    assert min(mine) >= at_least
    for worst in (_worst, _used):
        best = min(worst(each, live, overhead) for each in _splits(total, len(live), at_least))
        assert worst(mine, live, overhead) <= best * FLOAT


def test_the_case_in_which_variance_misleads() -> None:
    """Of 16 for times 1, 1, 1 and 2.99 the slow part takes 1: the worst is 5, not 5.98 as by variance."""
    speeds = [1, 1, 1, 1 / 2.99]
    assert split(16, speeds) == [5, 5, 5, 1]
    assert _worst(split(16, speeds), speeds, 0) == 5


@pytest.mark.parametrize(
    ("total", "speeds", "options", "counts"),
    [
        (12, [1, 1, 0], {}, [6, 6, 0]),
        (7, [1, 1, 1], {}, [3, 2, 2]),
        (16, [1, 1, 0.5, 1], {}, [5, 5, 2, 4]),
        (4, [1, 0.01], {}, [4, 0]),
        (4, [1, 0.01], {"at_least": 1}, [3, 1]),
        (32, [1, 1, 1, 0.5], {"overhead": 3}, [10, 10, 9, 3]),
        (0, [1, 0.5], {"overhead": 9}, [0, 0]),
    ],
)
def test_splits_by_hand(total: int, speeds: list[float], options: dict[str, int], counts: list[int]) -> None:
    """Of equal parts the first take more, slow ones less, and who would be last takes none."""
    assert split(total, speeds, **options) == counts


@pytest.mark.parametrize(("total", "speeds"), [(3, [0.0, 0.0]), (3, []), (1, [1.0, 1.0])])
def test_what_cannot_be_shared(total: int, speeds: list[float]) -> None:
    """Nobody alive, or fewer than each must take, is refused."""
    live = sum(speed > 0 for speed in speeds)
    with pytest.raises(InputError, match=f"^{total} micro-batches cannot be shared by {live} live workers$"):
        split(total, speeds, at_least=1)


@given(st.lists(st.lists(st.integers(0, 12), min_size=6, max_size=6), min_size=1, max_size=4), st.data())
def test_the_smallest_worst_is_that_of_the_best_split(steps: list[list[int]], data: st.DataObject) -> None:
    """For any times that grow from 0 with the count, of parts that may be alike."""
    tables = [tuple(sum(row[:count]) / 7 for count in range(7)) for row in steps]
    parts = [*tables, *data.draw(st.lists(st.sampled_from(tables), max_size=1))]
    total = data.draw(st.integers(1, 6))
    best = min(
        max(table[count] for table, count in zip(parts, counts, strict=True))
        for counts in _splits(total, len(parts))
    )
    found = smallest_worst(total, parts, lambda count, table: table[count])
    assert best <= found * FLOAT
    assert found <= best * FLOAT


@given(problems(microbatches=30), st.floats(0, 200))
def test_shares_of_a_stage(problem: Problem, period: float) -> None:
    """Even and fast shares cover everything; fast ones use a slower worker only when faster ones are full."""
    total = problem.dp * problem.microbatches
    for stage in range(problem.pp):
        cost, speeds = problem.costs[stage].total, [row[stage] for row in problem.speeds]
        even, fast = even_shares(problem, stage), fast_shares(problem, stage, period)
        assert sum(even) == sum(fast) == total
        assert not any(even[dead] + fast[dead] for dead, speed in enumerate(speeds) if speed == 0)
        longest = max(period, _used(even, speeds, 0) * cost)
        assert _used(fast, speeds, 0) * cost <= longest * FLOAT
        for slow in (pipeline for pipeline, count in enumerate(fast) if count):
            for pipeline, speed in enumerate(speeds):
                if speed > speeds[slow]:
                    assert (fast[pipeline] + 1) * cost / speed > longest / FLOAT


@given(problems(microbatches=30), st.floats(0, 200))
def test_loosened_shares_raise_only_the_fastest(problem: Problem, period: float) -> None:
    """Shares become limits: never below the share, for the fastest as much as fits into the period."""
    for stage in range(problem.pp):
        cost, speeds = problem.costs[stage].total, [row[stage] for row in problem.speeds]
        even = even_shares(problem, stage)
        longest = max(period, _used(even, speeds, 0) * cost)
        for shares in (even, fast_shares(problem, stage, period)):
            for pipeline, limit in enumerate(loosened(problem, stage, period, shares)):
                if speeds[pipeline] < max(speeds):
                    assert limit == shares[pipeline]
                else:
                    fits = math.floor(longest * FLOAT * speeds[pipeline] / cost)
                    assert shares[pipeline] <= limit <= max(fits, shares[pipeline])
                    assert (limit + 1) * cost / speeds[pipeline] > longest / FLOAT


def test_shares_of_a_known_stage() -> None:
    """With one worker dead and one at half speed of four, 8 each: the half takes half of the others."""
    problem = make_problem(4, 2, 8, dead="0.1", slow="2.1=0.5")
    assert even_shares(problem, 0) == [8, 8, 8, 8]
    assert even_shares(problem, 1) == [0, 13, 6, 13]
    assert fast_shares(problem, 1, 0.0) == [0, 13, 6, 13]
    assert fast_shares(problem, 1, 45.0) == [0, 15, 2, 15]
    assert fast_shares(problem, 1, 48.0) == [0, 16, 0, 16]
    assert loosened(problem, 1, 45.0, [0, 13, 6, 13]) == [0, 15, 6, 15]
