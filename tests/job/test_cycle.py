"""Cycle: what a step is, found from the calls of loaders and optimizers alone."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.job.beats import Beat, find_beat
from holdfast.job.cycle import MEMORY, Cycle

TRAIN, EVAL, OTHER = -1, -2, -3
MODEL, CRITIC = 1, 2
WARM = 12
"""Updates after which a cycle of a few calls is surely known."""


class Loop:
    """A training loop as the cycle sees it: a tape of what it said at each call."""

    def __init__(self) -> None:
        self.cycle = Cycle()
        self.ends: list[str] = []

    def fetch(self, loader: int = TRAIN) -> None:
        """Ask a loader for a batch that it has."""
        if self.cycle.mark_batch(loader):
            self._end("skipped")

    def update(self, optimizer: int = MODEL) -> None:
        """Call an optimizer."""
        if self.cycle.mark_update(optimizer):
            self._end("evaluated" if self.cycle.is_foreign else "usual")

    def exhaust(self, loader: int = TRAIN) -> None:
        """Ask a loader for a batch that it does not have."""
        self.fetch(loader)
        self.cycle.mark_exhausted(loader)

    def evaluate(self, batches: int) -> None:
        """Read all of another loader."""
        self.cycle.mark_epoch(EVAL)
        for _ in range(batches):
            self.fetch(EVAL)
        self.exhaust(EVAL)

    def _end(self, kind: str) -> None:
        self.ends.append(kind)
        self.cycle.is_foreign = False


def _warm(loop: Loop, body: Callable[[], None], turns: int = WARM) -> int:
    """Run a loop's body until the cycle is known; return how many steps were told, and its number is fixed."""
    loop.cycle.mark_epoch(TRAIN)
    for _ in range(turns):
        body()
    return loop.cycle.number


def _step(loop: Loop, batches: int = 1, updates: Sequence[int] = (MODEL,)) -> Callable[[], None]:
    def body() -> None:
        for _ in range(batches):
            loop.fetch()
        for optimizer in updates:
            loop.update(optimizer)

    return body


@pytest.mark.parametrize("batches", [0, 1, 2, 4, 16])
def test_a_step_is_an_update_however_many_batches_it_takes(batches: int) -> None:
    """Accumulated gradients, or no loader at all: from the first call on each update is one step."""
    loop = Loop()
    body = _step(loop, batches)
    assert _warm(loop, body) == 1
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
def test_a_pattern_of_several_calls_is_one_step(pattern: list[int]) -> None:
    """Once the cycle is known a turn of it is one step, always ended by the same call, and stays so."""
    loop = Loop()

    def turn() -> None:
        for symbol in pattern:
            (loop.update if symbol > 0 else loop.fetch)(symbol)

    number = _warm(loop, turn, turns=15)
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
def test_an_evaluation_is_a_flag_and_no_step(every: int, length: int) -> None:
    """However long it is and however often, it changes neither the number of steps nor what a step is."""
    loop = Loop()
    body = _step(loop)
    number = _warm(loop, body)
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
    body = _step(loop)
    for _ in range(100):
        for _ in range(3):
            body()
        loop.evaluate(5)
    assert len(loop.ends) == 300
    assert loop.ends[60:].count("evaluated") == 80
    assert loop.cycle.number == 1


@pytest.mark.parametrize("left", [1, 2, 3])
def test_batches_left_over_at_the_end_of_an_epoch_are_no_skipped_step(left: int) -> None:
    """Where four batches make a step, an epoch of some more drops them, and the next one starts anew."""
    loop = Loop()
    body = _step(loop, 4)
    number = _warm(loop, body)
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
    body = _step(loop)
    _warm(loop, body)
    for _ in range(20):
        loop.fetch()
        loop.cycle.mark_epoch(TRAIN)
        for _ in range(5):
            body()
    assert "skipped" not in loop.ends


def test_a_short_last_step_of_an_epoch_is_a_step() -> None:
    """Five batches an epoch, two a step: updates after two, two and one batch are three steps."""
    loop = Loop()
    for _ in range(100):
        loop.cycle.mark_epoch(TRAIN)
        for batches in (2, 2, 1):
            _step(loop, batches)()
        loop.exhaust()
    assert (loop.ends, loop.cycle.number) == (["usual"] * 300, 1)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (1, 8), (8, 1)])
def test_another_number_of_batches_is_another_cycle_once(before: int, after: int) -> None:
    """It is noticed within a few steps; from then on a step is an update again."""
    loop = Loop()
    number = _warm(loop, _step(loop, before), 50)
    body = _step(loop, after)
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
        _step(loop, chance.randint(1, 6))()
    assert loop.ends.count("usual") == 2000
    assert loop.ends.count("skipped") <= 200
    assert loop.cycle.number <= 3


def test_an_optimizer_that_takes_the_place_of_one_that_is_gone_changes_nothing() -> None:
    """It is given the symbol of the old one."""
    loop = Loop()
    body = _step(loop)
    number = _warm(loop, body)
    loop.cycle.forget(MODEL)
    _warm(loop, body)
    assert (len(loop.ends), loop.cycle.number) == (2 * WARM, number)


def test_an_optimizer_that_is_gone_ends_no_steps() -> None:
    """The next one that is called does, from its first call on."""
    loop = Loop()
    number = _warm(loop, _step(loop))
    loop.cycle.forget(MODEL)
    _warm(loop, _step(loop, updates=[CRITIC]))
    assert (len(loop.ends), loop.cycle.number) == (2 * WARM, number + 1)


@pytest.mark.parametrize("batches", [0, 1, 4])
def test_an_optimizer_that_is_replaced_but_kept_is_found_out(batches: int) -> None:
    """The old one is still referred to somewhere: after some calls the new one ends the steps."""
    loop = Loop()
    number = _warm(loop, _step(loop, batches))
    body = _step(loop, batches, updates=[CRITIC])
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
    body = _step(loop)
    number = _warm(loop, body)
    for _ in range(20):
        for _ in range(100):
            body()
        loop.update(CRITIC)
    assert (len(loop.ends), loop.cycle.number) == (WARM + 2000, number)


def test_a_critic_that_joins_later_becomes_part_of_the_step() -> None:
    """After a warm-up of the model alone."""
    loop = Loop()
    number = _warm(loop, _step(loop), 40)
    body = _step(loop, updates=[MODEL, CRITIC, CRITIC])
    for _ in range(40):
        body()
    told = len(loop.ends)
    for _ in range(50):
        body()
    assert len(loop.ends) == told + 50
    assert loop.cycle.number <= number + 1


@pytest.mark.parametrize("loader", [OTHER])
def test_a_new_loader_with_as_many_batches_is_the_same_step(loader: int) -> None:
    """A loader that is made anew while the old one lives is the cycle's after a few steps."""
    loop = Loop()
    number = _warm(loop, _step(loop))
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


@given(st.lists(st.integers(-2, 2).filter(bool), min_size=1, max_size=12), st.integers(0, 40))
def test_a_repeated_pattern_is_found_whenever_it_is_looked_at(pattern: list[int], shift: int) -> None:
    """Wherever in a turn the calls end, with an update, the same steps are found."""
    if not any(symbol > 0 for symbol in pattern):
        pattern = [*pattern, 1]
    calls = pattern * 10
    ends = [at for at in range(len(calls) - len(pattern), len(calls)) if calls[at] > 0]
    found = {find_beat(calls[: end + 1]) for end in ends}
    assert len({beat and (beat.leader, beat.every) for beat in found}) == 1
    assert isinstance(found.pop(), Beat)


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
