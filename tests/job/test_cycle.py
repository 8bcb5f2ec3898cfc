"""Cycle: what a step is, found from the calls of loaders and optimizers alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cycleloops import CRITIC, MODEL, OTHER, TRAIN, WARM, Loop, a_step, warm


@pytest.mark.parametrize("batches", [0, 1, 2, 4, 16])
def test_a_step_is_an_update_however_many_batches_it_takes(batches: int) -> None:
    """Accumulated gradients, or no loader at all: from the first call on each update is one step."""
    loop = Loop()
    body = a_step(loop, batches)
    assert warm(loop, body) == 1
    for _ in range(500):
        body()
    assert (loop.ends, loop.cycle.number) == (["usual"] * (WARM + 500), 1)


PATTERNS = {
    "two in turn": [TRAIN, MODEL, CRITIC],
    "two with a batch each": [TRAIN, MODEL, TRAIN, CRITIC],
    "critic five times, own batches": [TRAIN, CRITIC] * 5 + [MODEL],
    "critic five times, one batch": [TRAIN] + [CRITIC] * 5 + [MODEL],
    "critic five times, no loader": [CRITIC] * 5 + [MODEL],
    "twice each": [TRAIN, MODEL, MODEL, CRITIC, CRITIC],
    "two loaders": [TRAIN, OTHER, OTHER, MODEL],
    "seven optimizers": [TRAIN, 1, 2, 3, 4, 5, 6, 7],
    "long": [TRAIN, CRITIC] * 39 + [MODEL],
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_of_several_calls_is_onea_step(pattern: list[int]) -> None:
    """Once the cycle is known a turn of it is one step, always ended by the same call, and stays so."""
    loop = Loop()

    def turn() -> None:
        for symbol in pattern:
            (loop.update if symbol > 0 else loop.fetch)(symbol)

    number = warm(loop, turn, turns=15)
    told = len(loop.ends)
    for count in range(1, 301):
        turn()
        assert len(loop.ends) == told + count
    assert loop.ends[told:] == ["usual"] * 300
    assert loop.cycle.number == number <= 3


@given(
    st.integers(1, 4), st.lists(st.booleans(), min_size=1, max_size=80), st.integers(10, 30), st.booleans()
)
def test_a_skipped_update_ends_its_step_at_the_next_batch(
    batches: int, skips: list[bool], epoch: int, is_ahead: bool
) -> None:
    """With overflows anywhere but in a burst, in any epochs, ahead or not: one step for each turn."""
    calm = [skip and not any(skips[max(0, at - 4) : at]) for at, skip in enumerate(skips)]
    loop = Loop()
    told = _train(loop, [False] * epoch * 4, batches, epoch, is_ahead)
    number = loop.cycle.number
    del loop.ends[:told]
    _train(loop, [*calm, False], batches, epoch, is_ahead)
    assert loop.ends.count("skipped") == sum(calm)
    assert len(loop.ends) == len(calm) + 1
    assert loop.cycle.number == number


def _train(loop: Loop, skips: Sequence[bool], batches: int, epoch: int, is_ahead: bool) -> int:
    """Train in epochs of so many steps; return how many steps were told so far."""
    for start in range(0, len(skips), epoch):
        turns = skips[start : start + epoch]
        loop.cycle.mark_epoch(TRAIN)
        if is_ahead:
            loop.fetch()
        for at, skip in enumerate(turns):
            is_last = at == len(turns) - 1
            for _ in range(batches - (is_ahead and is_last)):
                loop.fetch()
            if is_ahead and is_last:
                loop.exhaust()
            if not skip:
                loop.update()
        if not is_ahead:
            loop.exhaust()
    return len(loop.ends)


@pytest.mark.parametrize("length", [1, 50, 1000])
@pytest.mark.parametrize("every", [2, 7, 20])
def test_an_evaluation_is_a_flag_and_noa_step(every: int, length: int) -> None:
    """However long it is and however often, it changes neither the number of steps nor what a step is."""
    loop = Loop()
    body = a_step(loop)
    number = warm(loop, body)
    loop.ends.clear()
    for step in range(1, 241):
        body()
        if step % every == 0:
            loop.evaluate(length)
    assert len(loop.ends) == 240
    # What comes after the last step has not ended.
    assert loop.ends.count("evaluated") == 240 // every - (240 % every == 0)
    assert loop.cycle.number == number


def test_an_evaluation_from_the_start_is_flagged_once_steps_are_known() -> None:
    """A job that evaluates after every third step never had steps without it in a row of twelve."""
    loop = Loop()
    body = a_step(loop)
    for _ in range(100):
        for _ in range(3):
            body()
        loop.evaluate(5)
    assert len(loop.ends) == 300
    assert loop.ends[60:].count("evaluated") == 80
    assert loop.cycle.number == 1


@pytest.mark.parametrize("left", [1, 2, 3])
def test_batches_left_over_at_the_end_of_an_epoch_are_no_skippeda_step(left: int) -> None:
    """Where four batches make a step, an epoch of some more drops them, and the next one starts anew."""
    loop = Loop()
    body = a_step(loop, 4)
    number = warm(loop, body)
    for _ in range(20):
        for _ in range(left):
            loop.fetch()
        loop.exhaust()
        loop.cycle.mark_epoch(TRAIN)
        for _ in range(6):
            body()
    assert loop.ends == ["usual"] * (WARM + 120)
    assert loop.cycle.number == number


def test_a_loop_that_is_left_early_has_skipped_nothing() -> None:
    """``break`` after a batch was fetched leaves a batch without an update, and no end of the loader."""
    loop = Loop()
    body = a_step(loop)
    warm(loop, body)
    for _ in range(20):
        loop.fetch()
        loop.cycle.mark_epoch(TRAIN)
        for _ in range(5):
            body()
    assert "skipped" not in loop.ends


def test_a_short_last_step_of_an_epoch_is_aa_step() -> None:
    """Five batches an epoch, two a step: updates after two, two and one batch are three steps."""
    loop = Loop()
    for _ in range(100):
        loop.cycle.mark_epoch(TRAIN)
        for batches in (2, 2, 1):
            a_step(loop, batches)()
        loop.exhaust()
    assert (loop.ends, loop.cycle.number) == (["usual"] * 300, 1)
