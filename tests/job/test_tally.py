"""Tally: every nanosecond has one name at most, and every call one channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.job.ring import CALLS, CHANNEL, CHANNELS_PER_STEP, HEADER_WORDS, SINCE
from holdfast.job.tally import REST, Tally
from holdfast.job.timed import size_bytes, timed


@pytest.fixture
def words() -> memoryview:
    """The header of a ring."""
    return memoryview(bytearray(8 * HEADER_WORDS)).cast("Q")


def _tally() -> Tally:
    return Tally(memoryview(bytearray(8 * HEADER_WORDS)).cast("Q"))


def test_a_call_under_way_shows_in_the_header(words: memoryview) -> None:
    """Which channel, since when, and how many were begun; a call that has ended shows no time."""
    tally = Tally(words)
    before_ns = time.monotonic_ns()
    seen = _call(tally, words[: SINCE + 2].tolist, channel=7)
    assert (seen[CALLS], seen[CHANNEL]) == (1, 7)
    assert before_ns <= seen[SINCE] <= time.monotonic_ns()
    assert (words[CALLS], words[SINCE], tally.calls) == (1, 0, 1)


def _call(tally: Tally, action: Callable[[], Any], channel: int = 1) -> Any:
    return timed(action, tally, lambda *_: channel)()


def test_a_step_is_told_once_and_the_next_begins_at_zero() -> None:
    """Sums by channel and over all, flags and work, then nothing."""
    tally = _tally()
    tally.add(1, 10, 100)
    tally.add(2, 5, 50, calls=3)
    tally.add(1, 1, 0, calls=0)
    tally.work, tally.flags, tally.data_ns, tally.operations_ns = 8, 2, 3, 7
    parts, channels = tally.take(99, 4)
    assert parts == (16, 3, 0, 0, 99, 7, 150, 4, 8, 2, 4)
    assert channels[:9] == [1, 11, 100, 1, 2, 5, 50, 3, 0]
    parts, channels = tally.take(0, 4)
    assert (sum(parts), sum(channels)) == (4, 0)


def test_an_operation_is_counted_without_what_it_waits_for() -> None:
    """What it spends in the data loader is its own."""
    tally, now_ns = _tally(), 1000
    tally.clock = lambda: now_ns
    began = tally.begin_operation()
    tally.add(1, 30)
    tally.data_ns += 20
    now_ns += 100
    tally.end_operation(began)
    assert (tally.operations_ns, tally.data_ns, tally.wait_ns) == (70, 20, 30)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10**9), st.integers(0, 2**40)), max_size=60))
def test_channels_of_a_record_sum_up_to_its_parts(uses: list[tuple[int, int, int]]) -> None:
    """However many there are: the rest is one channel, and those told apart were waited for longer."""
    tally = _tally()
    for channel, waited_ns, moved in uses:
        tally.add(channel, waited_ns, moved)
    parts, words = tally.take(0, 0)
    rows = [words[at : at + 4] for at in range(0, len(words), 4)]
    assert len(rows) == CHANNELS_PER_STEP
    assert [sum(row[field] for row in rows) for field in (1, 2, 3)] == [parts[0], parts[6], parts[7]]
    rest = [row for row in rows if row[0] == REST]
    assert len(rest) == (len({channel for channel, _, _ in uses}) > CHANNELS_PER_STEP)


Name = str


@given(
    st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.sampled_from("wdgs"), inner), max_size=4))
)
def test_pauses_within_pauses_are_counted_once(tree: list[tuple[Name, list[object]]]) -> None:
    """However calls, data, garbage and saving lie in each other, the names sum up to the time that passed."""
    ticks = iter(range(0, 10**9, 7))
    clock: Callable[[], int] = lambda: next(ticks)  # noqa: E731
    tally = _tally()
    tally.clock = clock
    started_ns = clock()
    _play(tally, tree)
    passed_ns = clock() - started_ns
    named_ns = tally.wait_ns + tally.data_ns + tally.gc_ns + tally.save_ns
    assert min(tally.wait_ns, tally.data_ns, tally.gc_ns, tally.save_ns) >= 0
    assert named_ns <= passed_ns
    # Only what is read between two names is nobody's: at most one tick on each side of each.
    assert passed_ns - named_ns <= 7 * (2 * _size(tree) + 1)


def _size(tree: list[tuple[Name, list[object]]]) -> int:
    return sum(1 + _size(inner) for _, inner in tree)  # type: ignore[arg-type, misc]


def _play(tally: Tally, tree: list[tuple[Name, list[object]]]) -> None:
    for name, inner in tree:
        if name == "w" and not tally.is_in_call:
            _call(tally, partial(_play, tally, inner))  # type: ignore[arg-type]
            continue
        began = tally.begin()
        _play(tally, inner)  # type: ignore[arg-type]
        lasted_ns = tally.lasted(began)
        if name == "g":
            tally.gc_ns += lasted_ns
        elif name == "s":
            tally.save_ns += lasted_ns
        else:
            tally.data_ns += lasted_ns


def test_an_interrupt_within_our_note_of_a_call_is_over_with_the_step() -> None:
    """A call that never left does not hide those of later steps."""
    tally = _tally()
    tally.is_in_call = True
    tally.take(0, 0)
    assert not tally.is_in_call


def test_a_stopped_tally_has_no_thread() -> None:
    """So that no hook thinks itself in the training thread."""
    tally = _tally()
    assert tally.thread == threading.get_ident()
    tally.stop()
    assert tally.thread not in {thread.ident for thread in threading.enumerate()}


class Sized:
    """Something with bytes."""

    nbytes = 12


class Message:
    """One of a batch: its tensor is within."""

    tensor = Sized()


class Odd:
    """Something whose size is no number."""

    nbytes = "many"


@pytest.mark.parametrize(
    ("args", "kwargs", "size"),
    [
        ((), {}, 0),
        ((Sized(),), {}, 12),
        (([Sized(), Sized()], Sized()), {}, 24),
        ((), {"tensor": Sized(), "group": None}, 12),
        (([Message(), Message()],), {}, 24),
        ((None,), {}, 0),
        (([None, "text"],), {}, 0),
        ((Odd(),), {}, 0),
    ],
)
def test_bytes_are_found_as_far_as_the_first_argument_tells(
    args: tuple[object, ...], kwargs: dict[str, object], size: int
) -> None:
    """Lists are summed; what has no bytes moves none."""
    assert size_bytes(args, kwargs) == size
