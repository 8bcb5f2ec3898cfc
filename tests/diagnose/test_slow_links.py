"""Slow links: the link, the NIC or the network is named, and a slow rank is not taken for one of them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detect.links import LinkRate
from holdfast.diagnose.links import DELAYED_ACK_S, SlowLink, find_slow_links

MB = 1_000_000
ELAPSED_S = 10.0
Links = dict[tuple[int, int], float]
"""Rates in MB/s by source and target."""
RING: Links = {(1, 0): 100.0, (2, 1): 100.0, (3, 2): 100.0, (0, 3): 100.0}
MESH: Links = dict.fromkeys(permutations(range(4), 2), 100.0)


def _rates(links: Links, moved_mb: float = 200.0, **fields: Any) -> list[LinkRate]:
    return [
        LinkRate(
            source=source,
            target=target,
            moved_bytes=round(moved_mb * MB),
            busy_s=moved_mb / rate,
            elapsed_s=ELAPSED_S,
            rate_bytes_s=rate * MB,
            **fields,
        )
        for (source, target), rate in links.items()
    ]


def _told(found: list[SlowLink]) -> list[tuple[str, list[int], tuple[int, int] | None]]:
    return [(each.kind, each.ranks, each.link) for each in found]


def _slowed(links: Links, factor: float, *slow: tuple[int, int]) -> Links:
    return {ends: rate / factor if ends in slow else rate for ends, rate in links.items()}


@pytest.mark.parametrize("links", [RING, MESH], ids=["ring", "mesh"])
@pytest.mark.parametrize("is_known", [True, False], ids=["healthy rates", "no healthy rates"])
def test_one_slow_direction_is_the_link(links: Links, is_known: bool) -> None:
    """It is named with source and target, and by how much it is slower."""
    healthy = _rates(links) if is_known else None
    (found,) = find_slow_links(_rates(_slowed(links, 4.0, (1, 0))), healthy)
    assert _told([found]) == [("link", [0, 1], (1, 0))]
    assert found.slowdown == pytest.approx(4.0)
    assert found.lost_share == pytest.approx((8.0 - 2.0) / ELAPSED_S)
    assert "rank 1 to rank 0 sends 25 MB/s" in found.evidence
    assert "60 % of the time" in found.evidence


def test_two_slow_directions_are_one_link() -> None:
    """The slower direction is told."""
    now = _slowed(_slowed(MESH, 4.0, (0, 2)), 5.0, (2, 0))
    (found,) = find_slow_links(_rates(now), _rates(MESH))
    assert _told([found]) == [("link", [0, 2], (2, 0))]
    assert found.evidence.startswith("both directions are slow: rank 2 to rank 0")


@pytest.mark.parametrize(
    ("links", "slow"),
    [
        pytest.param(RING, [(1, 0), (2, 1)], id="ring"),
        pytest.param(MESH, [ends for ends in MESH if 1 in ends], id="mesh"),
        pytest.param(MESH, [ends for ends in MESH if ends[0] == 1], id="sending only"),
        pytest.param(MESH, [ends for ends in MESH if ends[1] == 1], id="receiving only"),
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["healthy rates", "no healthy rates"])
def test_a_rank_most_of_whose_links_are_slow_has_a_slow_nic(
    links: Links, slow: list[tuple[int, int]], is_known: bool
) -> None:
    """It is told once, instead of its links."""
    healthy = _rates(links) if is_known else None
    (found,) = find_slow_links(_rates(_slowed(links, 3.0, *slow)), healthy)
    assert _told([found]) == [("nic", [1], None)]
    assert found.slowdown == pytest.approx(3.0)
    assert found.evidence.startswith(f"{len(slow)} links of rank 1 are slow: ")


def test_a_slow_nic_and_a_slow_link_elsewhere_are_both_told() -> None:
    """The costlier one comes first."""
    links: Links = dict.fromkeys(permutations(range(6), 2), 100.0)
    slow = [ends for ends in links if 1 in ends]
    now = _slowed(_slowed(links, 4.0, *slow), 5.0, (4, 5))
    assert _told(find_slow_links(_rates(now), None)) == [("link", [4, 5], (4, 5)), ("nic", [1], None)]


def test_two_slow_nics_are_both_told() -> None:
    """The link between them belongs to one of them."""
    links: Links = dict.fromkeys(permutations(range(8), 2), 100.0)
    slow = [ends for ends in links if 1 in ends or 6 in ends]
    assert _told(find_slow_links(_rates(_slowed(links, 4.0, *slow)), None)) == [
        ("nic", [1], None),
        ("nic", [6], None),
    ]


def test_links_that_all_got_slower_are_the_network() -> None:
    """Nobody is slower than the others, but all are slower than they were."""
    (found,) = find_slow_links(_rates(_slowed(RING, 3.0, *RING)), _rates(RING))
    assert _told([found]) == [("network", [0, 1, 2, 3], None)]
    assert found.evidence.startswith("the whole network of ranks 0 to 3 got slower: ")
    assert find_slow_links(_rates(_slowed(RING, 3.0, *RING)), None) == []


@pytest.mark.parametrize("slow", [[(1, 0)], [(0, 1), (1, 0)]], ids=["one direction", "both"])
def test_of_two_ranks_the_link_is_told(slow: list[tuple[int, int]]) -> None:
    """Which NIC it is cannot be told, and the whole network is this link."""
    links = {(0, 1): 100.0, (1, 0): 100.0}
    (found,) = find_slow_links(_rates(_slowed(links, 4.0, *slow)), _rates(links))
    assert (found.kind, found.ranks) == ("link", [0, 1])
    assert found.link in slow


def test_a_slow_link_among_links_of_other_speeds_is_found_by_what_it_was() -> None:
    """A fast link that lost three quarters is as fast as the others now."""
    links = {**RING, (1, 0): 400.0}
    found = find_slow_links(_rates(RING, moved_mb=400.0), _rates(links, moved_mb=400.0))
    assert _told(found) == [("link", [0, 1], (1, 0))]
    assert find_slow_links(_rates(links), _rates(links)) == []


def test_without_healthy_rates_links_within_a_host_are_not_compared_with_those_between_hosts() -> None:
    """Between hosts it is slower, and that is no fault."""
    local = _rates({(0, 1): 1000.0, (1, 0): 1000.0}, is_local=True)
    remote = _rates({(1, 2): 50.0, (2, 1): 50.0, (0, 2): 50.0})
    assert find_slow_links([*local, *remote], None) == []


@pytest.mark.parametrize(
    ("now", "healthy", "is_slow"),
    [
        pytest.param(_slowed(RING, 1.45, (1, 0)), RING, False, id="hardly below the others"),
        pytest.param(_slowed(RING, 1.6, (1, 0)), RING, True, id="below the others and itself"),
        pytest.param(_slowed(RING, 1.6, (1, 0)), {**RING, (1, 0): 70.0}, False, id="as it always was"),
    ],
)
def test_a_link_is_slow_against_the_others_and_against_itself(
    now: Links, healthy: Links, is_slow: bool
) -> None:
    """1.5 times slower than the others, and 1.3 times slower than it was."""
    found = find_slow_links(_rates(now, moved_mb=300.0), _rates(healthy, moved_mb=300.0))
    assert bool(found) == is_slow


def test_a_slow_link_that_costs_little_is_not_told() -> None:
    """Ten times slower, for a twentieth of the time."""
    assert find_slow_links(_rates(_slowed(RING, 10.0, (1, 0)), moved_mb=5.0), _rates(RING)) == []


@pytest.mark.parametrize("is_known", [True, False], ids=["healthy rates", "no healthy rates"])
@pytest.mark.parametrize("late", ["steps", "delayed_acks"])
def test_senders_that_wait_for_a_late_receiver_have_no_slow_links(late: str, is_known: bool) -> None:
    """A hundred times 40 ms explain four seconds, and those were all that was lost."""
    healthy = _rates(RING, steps=20) if is_known else None
    now = _slowed(RING, 3.0, (1, 0), (2, 1))
    times = round(4.0 / DELAYED_ACK_S)
    assert find_slow_links(_rates(now, **{late: times}), healthy) == []
    assert find_slow_links(_rates(now, **{late: times // 2}), healthy) != []


def test_where_nobody_is_late_that_explains_nothing() -> None:
    """The same rates, and all ranks are known to be as fast as ever; also half as much is told then."""
    now = _rates(_slowed(RING, 1.6, (1, 0)), steps=100, moved_mb=120.0)
    assert find_slow_links(now, _rates(RING)) == []
    (found,) = find_slow_links(now, _rates(RING), is_nobody_late=True)
    assert _told([found]) == [("link", [0, 1], (1, 0))]
    assert found.lost_share == pytest.approx(0.072)


def test_neighbours_who_always_chat_do_not_hide_a_slow_link() -> None:
    """Delayed acknowledgements that were there before explain nothing now."""
    now = _rates(_slowed(RING, 3.0, (1, 0)), delayed_acks=500.0)
    assert find_slow_links(now, _rates(RING)) == []
    assert _told(find_slow_links(now, _rates(RING, delayed_acks=500.0))) == [("link", [0, 1], (1, 0))]


def test_a_link_that_is_held_up_by_a_slower_one_is_not_told() -> None:
    """Rank 2 waits for rank 1, which waits for the slow link: that one is to blame."""
    now = _slowed(_slowed(RING, 4.0, (1, 0)), 1.8, (2, 1))
    assert _told(find_slow_links(_rates(now), _rates(RING))) == [("link", [0, 1], (1, 0))]


def test_links_that_tell_nothing_are_not_judged() -> None:
    """No rate, no time, or nothing to compare with."""
    silent = LinkRate(source=2, target=0, moved_bytes=0, busy_s=9.0, elapsed_s=10.0, rate_bytes_s=None)
    assert find_slow_links([], None) == []
    assert find_slow_links([silent], [silent]) == []
    assert find_slow_links(_rates({(0, 1): 1.0}, moved_mb=9.0), None) == []
    found = find_slow_links([*_rates(_slowed(RING, 4.0, (1, 0))), silent], [*_rates(RING), silent])
    assert _told(found) == [("link", [0, 1], (1, 0))]


@given(
    st.integers(3, 9),
    st.lists(st.floats(0.85, 1.15), min_size=72, max_size=72),
    st.lists(st.floats(0.85, 1.15), min_size=72, max_size=72),
    st.booleans(),
)
def test_healthy_links_that_vary_are_never_slow(
    ranks: int, noise: list[float], before: list[float], is_known: bool
) -> None:
    """Rates that differ by less than 15 % from the true one are noise."""
    ends = list(permutations(range(ranks), 2))
    now = _rates({link: 100.0 * factor for link, factor in zip(ends, noise, strict=False)})
    healthy = _rates({link: 100.0 * factor for link, factor in zip(ends, before, strict=False)})
    assert find_slow_links(now, healthy if is_known else None) == []


def test_a_bad_nic_in_a_small_ring_is_the_nic_and_those_who_wait_for_it_are_not() -> None:
    """Figures of a run: half of the links are its own, and half of the others' look slow beside it."""
    healthy = {
        (0, 1): 65.9, (0, 3): 57.9, (1, 0): 57.4, (1, 2): 66.5,
        (2, 1): 49.2, (2, 3): 69.9, (3, 0): 67.0, (3, 2): 51.3,
    }  # fmt: skip
    now = {
        (0, 1): 30.7, (0, 3): 9.62, (1, 0): 13.9, (1, 2): 14.0,
        (2, 1): 28.5, (2, 3): 10.2, (3, 0): 10.2, (3, 2): 9.71,
    }  # fmt: skip
    found = find_slow_links(_rates(now, moved_mb=44.0), _rates(healthy, moved_mb=262.0))
    assert _told(found) == [("nic", [3], None)]


def test_a_slow_link_of_a_small_ring_is_not_taken_for_the_nic_of_one_of_its_ends() -> None:
    """The other link of an end waits for it, and loses less."""
    healthy = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 0), (0, 3)], 60.0)
    now = dict.fromkeys(healthy, 30.0) | {(1, 2): 9.7, (2, 1): 9.7, (1, 0): 13.5}
    found = find_slow_links(_rates(now, moved_mb=44.0), _rates(healthy, moved_mb=262.0))
    assert [(each.kind, each.ranks) for each in found] == [("link", [1, 2])]
