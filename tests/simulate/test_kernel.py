"""The kernel: a clock that moves forward, and events in an order that never varies."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.simulate.kernel import Kernel

TIMES = st.lists(st.integers(0, 50), max_size=40)


@given(TIMES)
def test_events_happen_by_time_and_then_by_the_order_of_scheduling(times: list[int]) -> None:
    """Of two events at the same time, the one that was scheduled first happens first."""
    kernel, seen = Kernel(), []
    for number, at_s in enumerate(times):
        kernel.at(at_s, lambda number=number: seen.append(number))  # type: ignore[misc]
    kernel.run(51)
    assert seen == sorted(range(len(times)), key=lambda number: (times[number], number))


@given(TIMES, TIMES)
def test_clock_only_moves_forward(times: list[int], delays: list[int]) -> None:
    """Whatever events schedule, each sees a time that is not before the one that the event before it saw."""
    kernel, seen, left = Kernel(), [0.0], list(delays)

    def happen() -> None:
        seen.append(kernel.now_s)
        if left:
            kernel.after(left.pop(), happen)

    for at_s in times:
        kernel.at(at_s, happen)
    kernel.run(10_000)
    assert seen == sorted(seen)
    assert len(seen) == 1 + len(times) + (len(delays) if times else 0)


def test_event_sees_its_own_time() -> None:
    """The clock shows the time an event was scheduled for while it happens."""
    kernel, seen = Kernel(), []
    kernel.at(3, lambda: seen.append(kernel.now_s))
    kernel.after(1.5, lambda: seen.append(kernel.now_s))
    kernel.run(5)
    assert (seen, kernel.now_s) == ([1.5, 3], 5)


def test_run_stops_before_the_end_and_can_go_on() -> None:
    """An event at the very end belongs to the next run."""
    kernel, seen = Kernel(), []
    kernel.at(5, lambda: seen.append("end"))
    kernel.run(5)
    assert seen == []
    kernel.run(6)
    assert seen == ["end"]


def test_cancelled_event_does_not_happen() -> None:
    """Neither before its time nor twice can it be brought back."""
    kernel, seen = Kernel(), []
    event = kernel.at(1, lambda: seen.append("never"))
    kernel.at(2, lambda: seen.append("other"))
    event.cancel()
    event.cancel()
    kernel.run(3)
    assert (seen, event.is_pending) == (["other"], False)


def test_event_that_happened_can_be_cancelled_without_effect() -> None:
    """Whoever holds an event need not know whether it is over."""
    kernel, seen = Kernel(), []
    event = kernel.at(1, lambda: seen.append("once"))
    kernel.run(2)
    event.cancel()
    event.happen()
    assert seen == ["once"]


def test_step_tells_whether_anything_was_left() -> None:
    """A kernel without events stays where it is."""
    kernel = Kernel()
    kernel.at(4, lambda: None)
    assert (kernel.step(), kernel.now_s, kernel.step(), kernel.now_s) == (True, 4, False, 4)


@pytest.mark.parametrize("at_s", [0.5, -1, math.inf, math.nan])
def test_past_and_endless_times_are_refused(at_s: float) -> None:
    """Time runs one way, and an event that never comes is a mistake."""
    kernel = Kernel()
    kernel.run(1)
    with pytest.raises(ValueError, match="expected a finite time from 1"):
        kernel.at(at_s, lambda: None)
    with pytest.raises(ValueError, match="expected a finite time from 1"):
        kernel.run(at_s)
