"""Cycle: jobs that change in mid-run, jobs that repeat nothing, and what a call may cost."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cycleloops import CRITIC, EVAL, MODEL, OTHER, TRAIN, WARM, Loop, a_step, warm
from holdfast.job.beats import Beat, find_beat
from holdfast.job.cycle import MEMORY


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (1, 8), (8, 1)])
def test_another_number_of_batches_is_another_cycle_once(before: int, after: int) -> None:
    """It is noticed within a few steps; from then on a step is an update again."""
    loop = Loop()
    number = warm(loop, a_step(loop, before), 50)
    body = a_step(loop, after)
    for _ in range(30):
        body()
    told = len(loop.ends)
    assert loop.cycle.number == number + 1
    for _ in range(200):
        body()
    assert loop.ends[told:] == ["usual"] * 200
    assert loop.cycle.number == number + 1


@given(st.integers(0, 2**32))
def test_steps_of_random_length_are_each_a_step_after_a_while(seed: int) -> None:
    """Where no number of batches is usual, none is counted on for long, and all updates are steps."""
    chance, loop = random.Random(seed), Loop()
    for _ in range(2000):
        a_step(loop, chance.randint(1, 6))()
    assert loop.ends.count("usual") == 2000
    assert loop.ends.count("skipped") <= 200
    assert loop.cycle.number <= 8


def test_an_optimizer_that_takes_the_place_of_one_that_is_gone_changes_nothing() -> None:
    """It is given the symbol of the old one."""
    loop = Loop()
    body = a_step(loop)
    number = warm(loop, body)
    loop.cycle.forget(MODEL)
    warm(loop, body)
    assert (len(loop.ends), loop.cycle.number) == (2 * WARM, number)


def test_an_optimizer_that_is_gone_ends_no_steps() -> None:
    """The next one that is called does, from its first call on."""
    loop = Loop()
    number = warm(loop, a_step(loop))
    loop.cycle.forget(MODEL)
    warm(loop, a_step(loop, updates=[CRITIC]))
    assert (len(loop.ends), loop.cycle.number) == (2 * WARM, number + 1)


@pytest.mark.parametrize("batches", [0, 1, 4])
def test_an_optimizer_that_is_replaced_but_kept_is_found_out(batches: int) -> None:
    """The old one is still referred to somewhere: after some calls the new one ends the steps."""
    loop = Loop()
    number = warm(loop, a_step(loop, batches))
    body = a_step(loop, batches, updates=[CRITIC])
    for _ in range(100):
        body()
    told = len(loop.ends)
    for _ in range(100):
        body()
    assert loop.ends[told:] == ["usual"] * 100
    assert loop.cycle.number == number + 1


def test_a_rare_optimizer_does_not_change_what_a_step_is() -> None:
    """One that is called with every hundredth step, more calls than are remembered, is passed over."""
    loop = Loop()
    body = a_step(loop)
    number = warm(loop, body)
    for _ in range(20):
        for _ in range(100):
            body()
        loop.update(CRITIC)
    assert (len(loop.ends), loop.cycle.number) == (WARM + 2000, number)


def test_a_critic_that_joins_later_becomes_part_of_thea_step() -> None:
    """After a warm-up of the model alone."""
    loop = Loop()
    number = warm(loop, a_step(loop), 40)
    body = a_step(loop, updates=[MODEL, CRITIC, CRITIC])
    for _ in range(40):
        body()
    told = len(loop.ends)
    for _ in range(50):
        body()
    assert len(loop.ends) == told + 50
    assert loop.cycle.number <= number + 1


@pytest.mark.parametrize("loader", [OTHER])
def test_a_new_loader_with_as_many_batches_is_the_samea_step(loader: int) -> None:
    """A loader that is made anew while the old one lives is the cycle's after a few steps."""
    loop = Loop()
    number = warm(loop, a_step(loop))
    for _ in range(60):
        loop.fetch(loader)
        loop.update()
    assert loop.ends[-20:] == ["usual"] * 20
    assert (len(loop.ends), loop.cycle.number) == (WARM + 60, number)
    assert loop.cycle.is_own(loader)


def test_many_optimizers_that_are_called_in_no_order_end_a_step_each_time_the_first_is() -> None:
    """As with one per parameter, called in the backward pass: more calls than are remembered."""
    loop = Loop()
    for _ in range(50):
        loop.fetch()
        for optimizer in random.Random(1).sample(range(1, 401), 400):
            loop.update(optimizer)
    assert (len(loop.ends), loop.cycle.number) == (50, 1)


@given(st.lists(st.integers(-3, 3).filter(bool), max_size=600), st.randoms(use_true_random=False))
def test_any_calls_in_any_order_are_taken(calls: list[int], chance: random.Random) -> None:
    """Nothing raises, and memory has a bound."""
    loop = Loop()
    for symbol in calls:
        whim = chance.random()
        if symbol > 0:
            loop.cycle.forget(symbol) if whim < 0.1 else loop.update(symbol)
        elif whim < 0.1:
            loop.cycle.mark_epoch(symbol)
        elif whim < 0.2:
            loop.cycle.mark_exhausted(symbol)
        else:
            loop.fetch(symbol)
    assert len(loop.cycle._recent) <= 2 * MEMORY
    assert len(loop.cycle._gone) <= 3


@given(st.lists(st.integers(-2, 2).filter(bool), min_size=1, max_size=12))
def test_a_repeated_pattern_is_found_whenever_it_is_looked_at(pattern: list[int]) -> None:
    """Wherever in a turn the calls end, with an update, the same steps are found."""
    if not any(symbol > 0 for symbol in pattern):
        pattern = [*pattern, 1]
    calls = pattern * 10
    assume(not _has_inner_loop(calls, len(pattern)))
    ends = [at for at in range(len(calls) - len(pattern), len(calls)) if calls[at] > 0]
    found = {find_beat(calls[: end + 1]) for end in ends}
    assert len({beat and (beat.leader, beat.every) for beat in found}) == 1
    assert isinstance(found.pop(), Beat)


def _has_inner_loop(calls: list[int], period: int) -> bool:
    """Say whether a part of a turn is there three times in a row, which may be taken for the whole."""
    turns = [calls[start:] for start in range(period)]
    return any(
        turn[:length] == turn[length : 2 * length] == turn[2 * length : 3 * length]
        for turn in turns
        for length in range(1, period)
        if turn[:period] != turn[length : length + period]
    )


@pytest.mark.parametrize("optimizers", [1, 3, 300])
@pytest.mark.parametrize("most_batches", [0, 5, 500])
def test_a_call_costs_little_whatever_the_calls_are(optimizers: int, most_batches: int) -> None:
    """In lines of code: 60 on average, a few hundred for the call that looks for a cycle."""
    chance, loop, costs = random.Random(7), Loop(), []
    for _ in range(3000 // (1 + most_batches)):
        for _ in range(chance.randint(0, most_batches)):
            costs.append(_lines(lambda: loop.cycle.mark_batch(chance.choice([TRAIN, EVAL]))))
        costs.append(_lines(lambda: loop.cycle.mark_update(chance.randint(1, optimizers))))
    assert sum(costs) / len(costs) < 60
    assert max(costs) < 5000


def _lines(call: Callable[[], object]) -> int:
    """Return how many lines of ours a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "holdfast" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
