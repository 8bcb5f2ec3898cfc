"""Groups of ranks as runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.guard.packing import PackedChannel, Unpacker, pack
from holdfast.telemetry import Channel

_RANKS = st.lists(st.integers(0, 40), max_size=30)


def _channel(ranks: list[int]) -> Channel:
    return Channel(number=3, kind="group", ranks=ranks, name="dp")


@given(_RANKS)
def test_what_is_packed_comes_out_as_it_was(ranks: list[int]) -> None:
    """In any order, also with gaps and repetitions."""
    channels = {5: [_channel(ranks), _channel([*ranks, *range(100, 200, 4)])]}
    assert Unpacker().unpack(pack(channels)) == channels


@pytest.mark.parametrize(
    ("ranks", "runs"),
    [
        ([], ()),
        ([7], ((7, 1, 0),)),
        (list(range(10_000)), ((0, 10_000, 1),)),
        (list(range(3, 10_000, 8)), ((3, 1250, 8),)),
        ([0, 1, 2, 10, 11, 12], ((0, 3, 1), (10, 3, 1))),
    ],
)
def test_ranks_at_equal_distance_are_one_run(
    ranks: list[int], runs: tuple[tuple[int, int, int], ...]
) -> None:
    """As the groups of most layouts are."""
    assert pack({0: [_channel(ranks)]}) == {0: [PackedChannel(number=3, kind="group", runs=runs, name="dp")]}


@pytest.mark.parametrize("runs", [((0, 10**9, 1),), ((0, 1, 0),) * 1_000_001, ((0, -5, 1), (0, 5, 1))])
def test_a_group_that_cannot_be_is_refused(runs: tuple[tuple[int, int, int], ...]) -> None:
    """It is not even begun to be written out."""
    with pytest.raises(ValueError, match="expected at most"):
        Unpacker().unpack({0: [PackedChannel(number=1, kind="group", runs=runs)]})
