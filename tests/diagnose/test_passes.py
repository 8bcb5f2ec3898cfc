"""Passes over rings and trees: every link once, and nobody with two partners at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.diagnose.passes import ring_passes, tree_passes

Passes = list[list[tuple[int, int]]]
RANKS = st.builds(
    lambda count, seed: Random(seed).sample(range(2000), count), st.integers(0, 1000), st.integers(0, 2**32)
)
"""Up to a thousand ranks, in any order, with gaps."""


@given(RANKS)
def test_a_ring_has_each_of_its_links_in_one_pass(ranks: list[int]) -> None:
    """Every rank sends to the next one exactly once, and the last one to the first."""
    expected = list(zip(ranks, ranks[1:] + ranks[:1], strict=True)) if len(ranks) > 1 else []
    assert sorted(chain.from_iterable(ring_passes(ranks))) == sorted(expected)


@given(RANKS)
def test_a_tree_has_each_of_its_links_in_one_pass(ranks: list[int]) -> None:
    """Every rank but the root sends to its parent exactly once, and no parent has more than two children."""
    pairs = list(chain.from_iterable(tree_passes(ranks)))
    assert sorted(child for child, _ in pairs) == sorted(ranks[1:])
    places = {rank: place for place, rank in enumerate(ranks)}
    assert all((places[child] + 1) // 2 == places[parent] + 1 for child, parent in pairs)


@pytest.mark.parametrize("passes_of", [ring_passes, tree_passes])
@given(ranks=RANKS)
def test_pairs_of_a_pass_share_no_rank(
    passes_of: Callable[[Sequence[int]], Passes], ranks: list[int]
) -> None:
    """A transfer of a pass never competes with another one for the same rank."""
    for each in passes_of(ranks):
        busy = list(chain.from_iterable(each))
        assert len(busy) == len(set(busy))


@given(RANKS)
def test_the_number_of_passes_does_not_grow(ranks: list[int]) -> None:
    """An even ring takes two passes, an odd one three, a tree four."""
    assert len(tree_passes(ranks)) == 4
    if len(ranks) > 1:
        assert len(ring_passes(ranks)) == 2 + len(ranks) % 2


def test_small_rings_are_as_drawn() -> None:
    """Two ranks test each direction by itself, and the link that closes an odd ring has a pass of its own."""
    assert ring_passes([4]) == []
    assert ring_passes([4, 7]) == [[(4, 7)], [(7, 4)]]
    assert ring_passes([0, 1, 2]) == [[(0, 1)], [(1, 2)], [(2, 0)]]
    assert ring_passes([0, 1, 2, 3]) == [[(0, 1), (2, 3)], [(1, 2), (3, 0)]]
    assert ring_passes([0, 1, 2, 3, 4]) == [[(0, 1), (2, 3)], [(1, 2), (3, 4)], [(4, 0)]]


def test_a_small_tree_is_as_drawn() -> None:
    """Left children of even levels, right ones, and then the same of odd levels."""
    assert tree_passes(range(7)) == [[(3, 1), (5, 2)], [(4, 1), (6, 2)], [(1, 0)], [(2, 0)]]
    assert tree_passes([9]) == [[], [], [], []]


@pytest.mark.parametrize("passes_of", [ring_passes, tree_passes])
def test_a_rank_that_is_named_twice_is_refused(passes_of: Callable[[Sequence[int]], Passes]) -> None:
    """It would have to be in two places at once."""
    with pytest.raises(ValueError, match="ranks has 3 more than once"):
        passes_of([1, 3, 2, 3])
