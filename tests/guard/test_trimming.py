"""What travels is less, and tells the same."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches import make_batch, make_lines, make_process
from holdfast.detect.counters import NodeCounters, Sample, ThreadTimes
from holdfast.detect.host import strain_between
from holdfast.guard.batches import Batch
from holdfast.guard.trimming import Trimmer
from holdfast.telemetry import Channel

PID = 10


def _seen(at_s: float, threads: dict[int, ThreadTimes]) -> Batch:
    processes = {1: make_process(threads=threads)}
    return make_batch(sample=Sample(at_s=at_s, node=NodeCounters(), processes=processes))


def _threads(batch: Batch) -> dict[int, ThreadTimes] | None:
    return batch.sample.processes[1].threads


def test_threads_that_never_do_anything_do_not_travel() -> None:
    """The first one always does; it is counted from the look in which it was seen first."""
    trimmer = Trimmer()
    idle = {PID: ThreadTimes(ran_s=5.0), 11: ThreadTimes(ran_s=3.0), 12: ThreadTimes()}
    assert _threads(trimmer.trim(_seen(1.0, idle))) == {PID: ThreadTimes(ran_s=5.0)}
    busy = idle | {11: ThreadTimes(ran_s=3.5, waited_s=0.25)}
    told = _threads(trimmer.trim(_seen(2.0, busy)))
    assert told == {PID: ThreadTimes(ran_s=5.0), 11: ThreadTimes(ran_s=0.5, waited_s=0.25)}
    assert _threads(trimmer.trim(_seen(3.0, busy))) == told


def test_a_thread_that_is_gone_is_no_longer_told() -> None:
    """Its number may be given to another, which is counted from nothing."""
    trimmer = Trimmer()
    first = {PID: ThreadTimes()}
    trimmer.trim(_seen(1.0, first | {11: ThreadTimes()}))
    trimmer.trim(_seen(2.0, first | {11: ThreadTimes(ran_s=0.5)}))
    assert _threads(trimmer.trim(_seen(3.0, first))) == first
    assert _threads(trimmer.trim(_seen(4.0, first | {11: ThreadTimes(ran_s=0.25)}))) == (
        first | {11: ThreadTimes(ran_s=0.25)}
    )


_SPENT = st.sampled_from([0.0, 0.0, 0.25, 0.5])


@given(st.lists(st.tuples(*[st.tuples(_SPENT, _SPENT)] * 4), min_size=3, max_size=8), st.data())
def test_rates_come_out_as_if_all_threads_had_been_told(
    seconds: list[tuple[tuple[float, float], ...]], data: st.DataObject
) -> None:
    """Between any two looks, for threads that did nothing or more than a little."""
    trimmer = Trimmer()
    totals = [ThreadTimes(ran_s=9.0, waited_s=2.0)] * 4
    full, trimmed = [], []
    for second, spent in enumerate([((0.0, 0.0),) * 4, *seconds]):
        totals = [
            ThreadTimes(ran_s=total.ran_s + ran_s, waited_s=total.waited_s + waited_s)
            for total, (ran_s, waited_s) in zip(totals, spent, strict=True)
        ]
        full.append(_seen(float(second), {PID + number: each for number, each in enumerate(totals)}))
        trimmed.append(trimmer.trim(full[-1]))
    last = data.draw(st.integers(1, len(full) - 1))
    first = data.draw(st.integers(0, last - 1))
    assert strain_between(trimmed[first].sample, trimmed[last].sample) == strain_between(
        full[first].sample, full[last].sample
    )


def test_a_process_whose_threads_are_not_counted_travels_as_it_is() -> None:
    """None stays None."""
    batch = make_batch(
        sample=Sample(at_s=1.0, node=NodeCounters(), processes={1: make_process(threads=None)})
    )
    assert Trimmer().trim(batch) == batch


def test_another_process_of_the_same_rank_begins_anew() -> None:
    """Its threads have other totals."""
    trimmer = Trimmer()
    trimmer.trim(_seen(1.0, {PID: ThreadTimes(), 11: ThreadTimes(ran_s=1.0)}))
    trimmer.trim(_seen(2.0, {PID: ThreadTimes(), 11: ThreadTimes(ran_s=2.0)}))
    restarted = make_process(start_ticks=2, threads={PID: ThreadTimes(), 11: ThreadTimes(ran_s=0.001)})
    sample = Sample(at_s=3.0, node=NodeCounters(), processes={1: restarted})
    assert _threads(trimmer.trim(make_batch(sample=sample))) == {PID: ThreadTimes()}


def test_answers_travel_once() -> None:
    """They lie there until something else is asked; who starts over gets them again."""
    trimmer = Trimmer()
    first, second = make_lines("q", 1), make_lines("q", 2)
    assert trimmer.trim(make_batch(answers=[first])).answers == [first]
    assert trimmer.trim(make_batch(answers=[first, second])).answers == [second]
    assert trimmer.trim(make_batch(answers=[first, second])).answers == []
    trimmer.start_over()
    assert trimmer.trim(make_batch(answers=[first, second])).answers == [first, second]


def test_channels_travel_when_they_are_new() -> None:
    """Only those of the ranks that have new ones; who starts over gets all again."""
    trimmer = Trimmer()
    one = [Channel(number=1, kind="group", ranks=[0, 1])]
    two = [*one, Channel(number=2, kind="to", ranks=[3])]
    assert trimmer.trim(make_batch(channels={0: one, 1: one})).channels == {0: one, 1: one}
    assert trimmer.trim(make_batch(channels={0: one, 1: two})).channels == {1: two}
    assert trimmer.trim(make_batch(channels={0: one, 1: two})).channels == {}
    trimmer.start_over()
    assert trimmer.trim(make_batch(channels={0: one, 1: two})).channels == {0: one, 1: two}


@pytest.mark.parametrize("behind", [0, 2])
def test_attempts_are_counted_as_node_0_counts_them(behind: int) -> None:
    """A node that joined later has seen fewer of them."""
    trimmed = Trimmer(attempts_behind=behind).trim(make_batch())
    assert ([each.attempt for each in trimmed.steps], [each.attempt for each in trimmed.links]) == (
        [behind],
        [behind],
    )
    assert msgspec.structs.replace(trimmed.steps[0], attempt=0) == make_batch().steps[0]
