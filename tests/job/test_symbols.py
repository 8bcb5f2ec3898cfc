"""Symbols: numbers of living things, passed on when they die."""

from __future__ import annotations

import gc

import pytest

from holdfast.job.symbols import Symbols


class Thing:
    """Can be referred to weakly."""


def test_things_are_numbered_as_they_come() -> None:
    """In either direction, and always the same."""
    first, second = Thing(), Thing()
    up, down = Symbols(1), Symbols(-1)
    assert [up.of(first), up.of(second), up.of(first)] == [1, 2, 1]
    assert [down.of(first), down.of(second), down.of(second)] == [-1, -2, -2]


def test_the_number_of_a_dead_thing_goes_to_the_next_in_its_place() -> None:
    """And to no other; without a place it goes to nobody."""
    gone: list[int] = []
    symbols = Symbols(1, gone.append)
    numbers = [symbols.of(thing, place) for thing, place in ((Thing(), 5), (Thing(), 6), (Thing(), None))]
    gc.collect()
    kept = [Thing() for _ in range(4)]
    assert (numbers, sorted(gone)) == ([1, 2, 3], [1, 2, 3])
    places = (7, 6, 5, None)
    assert [symbols.of(thing, place) for thing, place in zip(kept, places, strict=True)] == [4, 2, 1, 5]


def test_a_thing_that_cannot_be_referred_to_weakly_is_refused_and_takes_no_number() -> None:
    """Lists of indices are such."""
    symbols, thing = Symbols(1), Thing()
    with pytest.raises(TypeError):
        symbols.of([1, 2], place=0)
    assert symbols.of(thing) == 1


def test_memory_is_that_of_the_living() -> None:
    """A thousand things in a thousand places leave little behind."""
    symbols = Symbols(1)
    for place in range(1000):
        symbols.of(Thing(), place)
    assert len(symbols._known) == 0
    assert len(symbols._free) < 100
