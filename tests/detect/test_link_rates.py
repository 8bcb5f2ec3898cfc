"""Rates of links: what one rank sent to another, over the time in which it had something to send."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.detect.links import LEAST_BYTES, LinkRate, LinkSnapshot, SocketCounters, link_rates

MB = 1_000_000
A, B = "10.0.0.1:5000", "10.0.0.2:6000"
ZEROS: dict[str, Any] = {
    "mss_bytes": 1448,
    "rtt_us": 200,
    "min_rtt_us": 50,
    "retransmits": 0,
    "bytes_acked": 0,
    "bytes_received": 0,
    "notsent_bytes": 0,
    "segments_sent": 0,
    "delivery_rate_bytes_s": 0,
    "busy_us": 0,
    "rwnd_limited_us": 0,
    "sndbuf_limited_us": 0,
    "spurious_retransmits": 0,
}


def _socket(local: str, peer: str, **fields: Any) -> SocketCounters:
    return SocketCounters(local=local, peer=peer, **(ZEROS | fields))


def _snapshot(rank: int, at_s: float, *sockets: SocketCounters, **fields: Any) -> LinkSnapshot:
    return LinkSnapshot(rank=rank, at_s=at_s, sockets=list(sockets), **{"host": f"host{rank}", **fields})


def _rates(now: dict[str, Any], **after: Any) -> list[LinkRate]:
    """Return the rates of a job of two ranks, of which rank 0 has sent something within two seconds."""
    before = [_snapshot(0, 10.0, _socket(A, B)), _snapshot(1, 10.1, _socket(B, A))]
    ends = _snapshot(0, 12.0, _socket(A, B, **now), **after), _snapshot(1, 12.1, _socket(B, A))
    return link_rates(before, ends)


def test_the_rate_is_what_was_moved_over_the_time_with_something_to_move() -> None:
    """Of two seconds the link was busy for half a one; the other direction moved nothing."""
    there, back = _rates({"bytes_acked": 50 * MB, "busy_us": 500_000, "segments_sent": 35_000}, steps=8)
    assert there == LinkRate(
        source=0,
        target=1,
        moved_bytes=50 * MB,
        busy_s=0.5,
        elapsed_s=2.0,
        rate_bytes_s=100.0 * MB,
        steps=8,
        rtt_s=0.0002,
    )
    assert (back.source, back.target, back.moved_bytes, back.rate_bytes_s) == (1, 0, 0, None)


def test_time_in_which_the_receiver_had_no_room_is_not_the_links() -> None:
    """Half of the busy time went by because the receiver did not read."""
    there, _ = _rates({"bytes_acked": 50 * MB, "busy_us": 1_000_000, "rwnd_limited_us": 500_000})
    assert (there.busy_s, there.rate_bytes_s) == (0.5, 100.0 * MB)


def test_several_connections_of_two_ranks_are_one_link() -> None:
    """Bytes and busy times add up, the longest round trip is told; small messages have no rate."""
    names = [("10.0.0.1:1", "10.0.0.2:1"), ("10.0.0.2:2", "10.0.0.1:2"), ("10.0.0.1:3", "10.0.0.2:3")]
    moved: list[dict[str, Any]] = [
        {"bytes_acked": 10 * MB, "busy_us": 100_000, "rtt_us": 300},
        {"bytes_acked": 30 * MB, "busy_us": 300_000, "retransmits": 7, "spurious_retransmits": 2},
        {"bytes_acked": 3 * MB, "busy_us": 900_000, "segments_sent": 30_000, "rtt_us": 900},
    ]
    own = [(names[0], moved[0]), (names[1][::-1], moved[1]), (names[2], moved[2])]
    before = [
        _snapshot(0, 0.0, *(_socket(*ends) for ends, _ in own)),
        _snapshot(1, 0.0, *(_socket(*ends[::-1]) for ends, _ in own)),
    ]
    after = [
        _snapshot(0, 1.0, *(_socket(*ends, **fields) for ends, fields in own)),
        _snapshot(1, 1.0, *(_socket(*ends[::-1]) for ends, _ in own)),
    ]
    there, _ = link_rates(before, after)
    assert (there.moved_bytes, there.busy_s, there.rate_bytes_s) == (40 * MB, 0.4, 100.0 * MB)
    assert (there.retransmits, there.rtt_s) == (5, 0.0009)


@pytest.mark.parametrize(
    ("now", "rate"),
    [
        ({"bytes_acked": LEAST_BYTES - 1, "busy_us": 500_000}, None),
        ({"bytes_acked": LEAST_BYTES, "busy_us": 500_000}, LEAST_BYTES / 0.5),
        pytest.param({"bytes_acked": 50 * MB, "busy_us": 4_000}, 50 * MB / 0.02, id="one tick of the kernel"),
        pytest.param({"bytes_acked": 50 * MB, "busy_us": 0}, 50 * MB / 0.02, id="no tick of the kernel"),
        pytest.param(
            {"bytes_acked": 2 * MB, "busy_us": 10**6, "segments_sent": 10_000}, None, id="small messages"
        ),
        pytest.param(
            {"bytes_acked": 2 * MB, "busy_us": 10**6, "mss_bytes": None, "segments_sent": None},
            2 * MB,
            id="a kernel that does not count segments",
        ),
        pytest.param(
            {"bytes_acked": 2 * MB, "busy_us": 10**6, "mss_bytes": 65_483, "segments_sent": 500},
            2 * MB,
            id="4 KB at a time, within a host",
        ),
        pytest.param(
            {"bytes_acked": 2 * MB, "busy_us": 10**6, "mss_bytes": 65_483, "segments_sent": 2000},
            None,
            id="1 KB at a time, within a host",
        ),
    ],
)
def test_a_rate_is_told_only_where_enough_was_moved(now: dict[str, Any], rate: float | None) -> None:
    """Too few bytes and small messages have none; what took less than some ticks has at least so much."""
    assert _rates(now)[0].rate_bytes_s == rate


def test_a_kernel_that_does_not_tell_has_no_links() -> None:
    """Without bytes or busy time nothing is said."""
    assert [each.source for each in _rates({"bytes_acked": None})] == [1]
    assert [each.source for each in _rates({"bytes_acked": 5 * MB, "busy_us": None})] == [1]


def test_a_connection_is_known_by_both_its_ends() -> None:
    """One of another rank's addresses is not enough: the peer must have the connection too."""
    before = [_snapshot(0, 0.0, _socket(A, B)), _snapshot(1, 0.0, _socket(B, "10.0.0.9:1"))]
    assert link_rates(before, before) == []


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "[::1]:{}"])
def test_loopback_addresses_mean_something_on_one_host_only(address: str) -> None:
    """Ranks 0 and 1 are connected on one host, 2 and 3 by the same addresses on another."""
    left, right = address.format(1), address.format(2)

    def look(at_s: float, **fields: Any) -> list[LinkSnapshot]:
        return [
            _snapshot(rank, at_s, _socket(*ends, **fields), host="east" if rank < 2 else "west")
            for rank, ends in enumerate([(left, right), (right, left)] * 2)
        ]

    rates = link_rates(look(0.0), look(1.0, bytes_acked=9 * MB, busy_us=90_000))
    assert [(each.source, each.target) for each in rates] == [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert {each.is_local for each in rates} == {True}


def test_hosts_of_the_same_loopback_address_are_not_connected() -> None:
    """A peer on another host that happens to have the mirrored addresses is a stranger."""
    ends = "127.0.0.1:1", "127.0.0.1:2"
    look = [_snapshot(0, 0.0, _socket(*ends)), _snapshot(1, 0.0, _socket(*ends[::-1]))]
    assert link_rates(look, look) == []


def test_a_connection_that_was_made_anew_with_the_same_ends_is_left_out() -> None:
    """Counters that fell belong to another connection."""
    before = [_snapshot(0, 0.0, _socket(A, B, bytes_acked=10 * MB)), _snapshot(1, 0.0, _socket(B, A))]
    after = [_snapshot(0, 1.0, _socket(A, B, bytes_acked=9 * MB)), _snapshot(1, 1.0, _socket(B, A))]
    assert [each.source for each in link_rates(before, after)] == [1]


@pytest.mark.parametrize("change", [{"pid": 8}, {"attempt": 1}])
def test_a_rank_that_was_started_again_has_no_rates_yet(change: dict[str, int]) -> None:
    """Its counters are those of another process."""
    assert [each.source for each in _rates({"bytes_acked": 5 * MB, "busy_us": 10**5}, **change)] == [1]


def test_connections_and_ranks_that_are_new_are_left_out() -> None:
    """What is not in both snapshots has no rate; the order of the snapshots does not matter."""
    new = "10.0.0.1:7", "10.0.0.2:7"
    before = [_snapshot(0, 0.0, _socket(A, B))]
    after = [
        _snapshot(1, 1.0, _socket(B, A), _socket(*new[::-1])),
        _snapshot(0, 1.0, _socket(A, B), _socket(*new, bytes_acked=99 * MB)),
    ]
    (there,) = link_rates(before, after)
    assert (there.source, there.target, there.moved_bytes, there.delayed_acks) == (0, 1, 0, 0.0)


def test_delayed_acknowledgements_are_those_of_the_receivers_host_in_as_much_time() -> None:
    """Snapshots of two ranks are of different times: 30 in three seconds are 20 in two."""
    before = [_snapshot(0, 0.0, _socket(A, B), delayed_acks=5), _snapshot(1, 0.0, _socket(B, A))]
    before[1] = msgspec.structs.replace(before[1], delayed_acks=100)
    after = [_snapshot(0, 2.0, _socket(A, B)), _snapshot(1, 3.0, _socket(B, A), delayed_acks=130)]
    there, back = link_rates(before, after)
    assert (there.delayed_acks, back.delayed_acks) == (20.0, 0.0)


def test_small_messages_beside_bulk_have_no_rate() -> None:
    """Within a host nothing but their number tells them from bulk: a quarter of what the busiest carries."""
    names = [("10.0.0.1:1", "10.0.0.1:2"), ("10.0.0.1:3", "10.0.0.1:4")]
    local = {"mss_bytes": 65_483, "busy_us": 10**6}
    moved: list[dict[str, Any]] = [
        {"bytes_acked": 40 * MB, "segments_sent": 1000, **local},
        {"bytes_acked": 4 * MB, "segments_sent": 1000, **local},
    ]
    before = [
        _snapshot(0, 0.0, _socket(*names[0]), _socket(*names[1])),
        _snapshot(1, 0.0, _socket(*names[0][::-1])),
        _snapshot(2, 0.0, _socket(*names[1][::-1])),
    ]
    after = [
        _snapshot(0, 1.0, _socket(*names[0], **moved[0]), _socket(*names[1], **moved[1])),
        _snapshot(1, 1.0, _socket(*names[0][::-1])),
        _snapshot(2, 1.0, _socket(*names[1][::-1])),
    ]
    rates = {(each.source, each.target): each.rate_bytes_s for each in link_rates(before, after)}
    assert rates[0, 1] == 40 * MB
    assert rates[0, 2] is None
