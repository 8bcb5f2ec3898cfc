"""What summary rows add up to, whatever the order."""

from __future__ import annotations

import functools
import statistics
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.serve.store.parts import Part, pack, part_of, unpack
from store.storecases import row

TIMES = st.dictionaries(st.integers(0, 70), st.floats(0, 1000), max_size=8)
PARTS = st.builds(lambda times, step: part_of(row(0, times, step=step)), TIMES, st.integers(0, 1000))


@settings(max_examples=50)
@given(st.lists(PARTS, max_size=6), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(parts: list[Part], random: Random) -> None:
    """Sums are of whole microseconds, so not even in the last digit."""
    shuffled = sorted(parts, key=lambda _: random.random())
    assert functools.reduce(Part.add, parts, Part()) == functools.reduce(Part.add, shuffled, Part())


@settings(max_examples=50)
@given(PARTS, PARTS)
def test_a_part_survives_the_database(one: Part, other: Part) -> None:
    """Packed and unpacked, it is the same."""
    both = one.add(other)
    assert unpack(pack(both)) == both


@settings(max_examples=50)
@given(st.lists(st.floats(1e-3, 1e5), min_size=1, max_size=200))
def test_the_median_is_within_two_percent(times_s: list[float]) -> None:
    """Of the lower median of all ranks, without keeping them."""
    part = part_of(row(0, dict(enumerate(times_s))))
    wanted = statistics.median_low(times_s)
    assert abs(part.median_s - wanted) <= 0.02 * wanted + 1e-6


def test_equal_times_are_exact() -> None:
    """As they are in a job whose ranks wait for each other."""
    assert part_of(row(0, dict.fromkeys(range(10_000), 0.731))).median_s == 0.731


def test_ten_thousand_ranks_are_small() -> None:
    """A second of a large job is less than a line of text."""
    assert len(pack(part_of(row(0, dict.fromkeys(range(10_000), 0.731))))) < 60


def test_the_lowest_rank_is_named_among_equals() -> None:
    """So that everybody names the same."""
    part = part_of(row(0, {3: 2.0, 1: 2.0, 0: 1.0})).add(part_of(row(0, {2: 2.0})))
    assert (part.slowest_us, part.slowest_rank) == (2_000_000, 1)
