"""Profiles reduced to patterns: who is on the critical path, and how well a resource is used meanwhile."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from holdfast.diagnose.criticalpath import Union, own_us, shares
from holdfast.diagnose.reduce import Samples, WorkerPattern, gather, reduce_trace
from holdfast.diagnose.utilisation import critical_span, use
from holdfast.observe.kineto import Function, Trace

Event = tuple[int, float, float, int, int]
"""Function, start, end, thread, caller."""


def trace_of(functions: list[Function], events: list[Event]) -> Trace:
    """A trace of these."""
    columns = np.array(events, float).reshape(-1, 5).T
    return Trace(
        rank=0,
        world_size=1,
        groups=[],
        functions=functions,
        function=columns[0].astype(np.int64),
        caller=columns[4].astype(np.int64),
        thread=columns[3].astype(np.int64),
        start_us=columns[1],
        end_us=columns[2],
        base_ns=0,
        marks=[],
        events=len(events),
        broken=0,
    )


GEMM = Function(name="gemm", kind="compute")
COPY = Function(name="copy", kind="memory")
REDUCE = Function(name="all_reduce", kind="collective")
MAIN = Function(name="main", kind="python")
LOAD = Function(name="load", kind="python", caller=3)


def test_what_is_higher_hides_what_is_lower() -> None:
    """Compute counts whole; a copy only outside of it; a collective outside of both; Python when all rest."""
    events = [(0, 10.0, 20.0, 1, -1), (1, 15.0, 30.0, 3, -1), (2, 25.0, 40.0, 2, -1), (3, 0.0, 50.0, 0, -1)]
    found = shares(trace_of([GEMM, COPY, REDUCE, MAIN], events))
    assert found == pytest.approx([10 / 50, 10 / 50, 10 / 50, 20 / 50])


def test_of_python_the_innermost_counts() -> None:
    """What a function calls is not its own; what runs in another thread is nobody's."""
    events = [(3, 0.0, 100.0, 0, -1), (4, 10.0, 40.0, 0, 0), (0, 20.0, 30.0, 0, -1), (3, 0.0, 90.0, 7, -1)]
    own = own_us(trace_of([GEMM, COPY, REDUCE, MAIN, LOAD], events))
    assert own.tolist() == [70.0, 20.0, 10.0, 0.0]


@pytest.mark.parametrize("seed", range(20))
def test_critical_path_agrees_with_looking_at_every_moment(seed: int) -> None:
    """Against a clock that ticks through all events."""
    rng = np.random.default_rng(seed)
    functions = [GEMM, COPY, REDUCE]
    events = [
        (
            int(rng.integers(3)),
            float(start := rng.integers(0, 50)),
            float(start + rng.integers(0, 12)),
            at,
            -1,
        )
        for at in range(30)
    ]
    expected = [0.0] * 30
    for tick in range(70):
        running = [at for at, event in enumerate(events) if event[1] <= tick < event[2]]
        highest = min((events[at][0] for at in running), default=3)
        for at in running:
            expected[at] += events[at][0] == highest
    assert own_us(trace_of(functions, events)).tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_of_operations_in_one_thread_the_innermost_counts(seed: int) -> None:
    """Against a clock that asks at every tick which of nested operations is the shortest that runs."""
    rng = np.random.default_rng(seed)
    events = [event for thread in range(3) for event in _nested(rng, 0, 40, thread, depth=3)]
    expected = [0.0] * len(events)
    for tick in range(40):
        for thread in range(3):
            running = [at for at, e in enumerate(events) if e[3] == thread and e[1] <= tick < e[2]]
            if running:
                expected[max(running)] += 1  # Who is called comes after its caller.
    assert own_us(trace_of([GEMM], events)).tolist() == expected


def _nested(rng: np.random.Generator, low: int, high: int, thread: int, depth: int) -> list[Event]:
    """Operations that lie beside and within each other, callers first."""
    found: list[Event] = []
    at = low
    while depth and high - at >= 2:
        first = int(rng.integers(at, high - 1))
        last = int(rng.integers(first + 1, high + 1))
        found.append((0, float(first), float(last), thread, -1))
        found += _nested(rng, first, last, thread, depth - 1)
        at = last
    return found


def test_a_copy_within_an_operation_is_a_copy() -> None:
    """On a CPU one operation calls another; the collector stops all of Python."""
    collector = Function(name="Python GC", kind="python")
    events = [
        (0, 0.0, 10.0, 0, -1),
        (1, 2.0, 8.0, 0, -1),
        (3, 0.0, 40.0, 0, -1),
        (4, 20.0, 30.0, 0, 2),
        (5, 22.0, 25.0, 0, -1),
    ]
    own = own_us(trace_of([GEMM, COPY, REDUCE, MAIN, LOAD, collector], events))
    assert own.tolist() == [4.0, 6.0, 20.0, 7.0, 3.0]


def test_threads_that_python_has_started_do_not_train() -> None:
    """However long one sleeps."""
    thread = Function(name="threading.py(1002): _bootstrap", kind="python")
    sleep = Function(name="sleep", kind="python", caller=0)
    events = [(0, 0.0, 100.0, 1, -1), (1, 0.0, 99.0, 1, 0), (2, 0.0, 10.0, 0, -1)]
    own = own_us(trace_of([thread, sleep, Function(name="main", kind="python")], events))
    assert own.tolist() == [0.0, 0.0, 10.0]


def test_a_union_knows_what_it_covers() -> None:
    """Touching and nested stretches are one."""
    union = Union(np.array([5.0, 0.0, 1.0, 10.0]), np.array([7.0, 4.0, 2.0, 11.0]))
    at = np.array([-1.0, 0.0, 2.0, 4.5, 6.0, 7.0, 10.5, 99.0])
    assert union.covered(at).tolist() == [0, 0, 2, 4, 5, 6, 6.5, 7]
    assert Union(np.zeros(0), np.zeros(0)).covered(at).tolist() == [0.0] * 8


def test_published_example_of_the_critical_duration() -> None:
    """The facts' test vector: samples 8 to 16."""
    used = [0.7, 0, 0.6, 0, 0, 0, 0, 0, 0.8, 0.8, 0.8, 0, 0.8, 0.8, 0.8, 0.8, 0.8, 0, 0]
    assert critical_span(np.array(used)) == (8, 16)


def test_nothing_used_is_the_whole_stretch() -> None:
    """And a floor makes noise nothing."""
    assert critical_span(np.zeros(5)) == (0, 4)
    assert critical_span(np.array([0.01, 0.9, 0.01, 0.01]), floor=0.05) == (1, 1)


@pytest.mark.parametrize("seed", range(30))
def test_critical_duration_is_that_of_the_definition(seed: int) -> None:
    """The smallest longest pause of any part that holds 80 %, by trying all of them."""
    rng = np.random.default_rng(seed)
    used = np.where(rng.random(18) < 0.5, 0.0, rng.random(18))
    low, high = critical_span(used)
    assert used[low : high + 1].sum() >= 0.8 * used.sum() - 1e-12
    least = min(
        _pause(used[a : b + 1])
        for a, b in itertools.combinations_with_replacement(range(18), 2)
        if used[a : b + 1].sum() >= 0.8 * used.sum() - 1e-12
    )
    assert _pause(used[low : high + 1]) == least


def _pause(used: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    return max((len(list(run)) for is_zero, run in itertools.groupby(used == 0) if is_zero), default=0)


def test_use_is_weighted_by_critical_duration() -> None:
    """Waiting at both ends of an execution does not count, and short ones take the nearest sample."""
    at = np.arange(20.0)
    used = np.where((at >= 5) & (at <= 8), 0.6, 0.0)
    found = use(np.array([0.0]), np.array([19.0]), at, used)
    assert found == pytest.approx((0.6, 0.0))
    short = use(np.array([5.2, 0.2]), np.array([5.3, 0.3]), at, used)
    assert short.mean == pytest.approx(0.3)
    assert use(np.zeros(0), np.zeros(0), at, used) == (0.0, 0.0)
    assert use(np.array([1.0]), np.array([2.0]), np.zeros(0), np.zeros(0)) == (0.0, 0.0)


def test_a_pattern_is_small_and_comes_back_as_it_was() -> None:
    """Shares of the time and the use of resources of functions that took time; a stack by its callers."""
    events = [(3, 0.0, 100.0, 0, -1), (4, 10.0, 40.0, 0, 0), (0, 60.0, 80.0, 0, -1)]
    trace = trace_of([GEMM, COPY, REDUCE, MAIN, LOAD], events)
    samples = Samples(at_us=np.arange(0.0, 100.0, 2), share=np.full(50, 0.5))
    pattern, known = reduce_trace(trace, 7, {"cpu": samples})
    wire = msgspec.msgpack.encode(pattern)
    assert len(wire) < 1024
    patterns, rows = gather([msgspec.msgpack.decode(wire, type=WorkerPattern)], known)
    assert [row.name for row in rows] == patterns.names
    assert patterns.ranks.tolist() == [7]
    found = dict(zip(patterns.names, patterns.beta[:, 0].tolist(), strict=True))
    assert found == pytest.approx({"main": 0.5, "load": 0.3, "gemm": 0.2}, abs=1e-4)
    assert patterns.mu == pytest.approx(0.5, abs=1e-4)
    assert [each.stack for each in known.values() if each.name == "load"] == [["load", "main"]]


def test_the_largest_pattern_fits_into_a_kilobyte() -> None:
    """However many functions there are."""
    functions = [Function(name=f"f{n}", kind="compute") for n in range(500)]
    events = [(n, 10.0 * n, 10.0 * n + 5 + n / 500, 0, -1) for n in range(500)]
    pattern, known = reduce_trace(trace_of(functions, events), 10**6, {}, steps=10**6)
    assert len(known) == 60
    assert len(msgspec.msgpack.encode(pattern)) <= 1024


def test_workers_without_a_function_have_none_of_it() -> None:
    """Patterns of unlike workers are put together by the functions' numbers."""
    one, first = reduce_trace(trace_of([GEMM, COPY], [(0, 0.0, 8.0, 0, -1), (1, 8.0, 10.0, 0, -1)]), 1, {})
    two, second = reduce_trace(trace_of([COPY], [(0, 0.0, 5.0, 0, -1)]), 0, {})
    patterns, _ = gather([one, two], {**first, **second})
    by_name = {name: row.tolist() for name, row in zip(patterns.names, patterns.beta, strict=True)}
    assert patterns.ranks.tolist() == [0, 1]
    assert by_name == {"gemm": pytest.approx([0, 0.8], abs=1e-4), "copy": pytest.approx([1, 0.2], abs=1e-4)}
