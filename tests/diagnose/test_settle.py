"""Settling: which link it is, and one suspect for what holds a rank up in all that it does."""

from __future__ import annotations

import pytest

from holdfast.detect.links import LinkRate
from holdfast.diagnose.case import stands_out
from holdfast.diagnose.links import SlowLink
from holdfast.diagnose.settle import settle
from holdfast.findings import Cause, Suspect

RANKS = [0, 1, 2, 3]


def suspect(cause: Cause, ranks: list[int], function: str = "f", cost_s: float = 1.0) -> Suspect:
    return Suspect(
        kind="function",
        ranks=ranks,
        function=function,
        cause=cause,
        cost_s=cost_s,
        confidence=0.8,
        victims=[rank for rank in RANKS if rank not in ranks],
        evidence=[f"{function} takes longer"],
    )


def link(source: int, target: int) -> SlowLink:
    return SlowLink(
        kind="link",
        ranks=[source, target],
        link=(source, target),
        slowdown=4.0,
        lost_share=0.3,
        evidence="it sends 10 MB/s, 100 MB/s is usual",
    )


def test_the_link_is_named_where_all_are_slow() -> None:
    """All ranks of a ring wait; the connection that is slow has it, and the others are victims."""
    found = settle([suspect("link", RANKS, "all_reduce")], [link(1, 2)], RANKS, waited_share=0.8)
    (named,) = found
    assert (named.kind, named.link, named.ranks, named.victims) == ("link", (1, 2), [1, 2], [0, 3])
    assert named.function == "all_reduce"
    assert named.evidence[0] == "it sends 10 MB/s, 100 MB/s is usual"


def test_without_a_slow_link_nothing_changes() -> None:
    """What profiles show stays as it is."""
    suspects = [suspect("link", RANKS), suspect("storage", [2])]
    assert settle(suspects, [], RANKS, waited_share=0.8) == suspects


def test_a_slow_link_that_costs_nothing_is_nobody() -> None:
    """Ranks that hardly communicate do not mind; and who waits for somebody else does not either."""
    assert settle([], [link(1, 2)], RANKS, waited_share=0.02) == []
    slow = suspect("compute", [3])
    assert settle([slow], [link(1, 2)], RANKS, waited_share=0.5) == [slow]


def test_a_slow_link_alone_is_told() -> None:
    """Where ranks spend much of their time in collectives, and nobody else is to blame."""
    (named,) = settle([], [link(1, 2)], RANKS, waited_share=0.4)
    assert (named.link, named.cost_s) == ((1, 2), None)


def test_who_is_kept_from_running_is_late_in_everything() -> None:
    """One suspect, with all that was seen; what others suffer from is another."""
    held = suspect("cpu_contention", [1], "aten::mm", cost_s=2.0)
    late = suspect("storage", [1], "recv_into", cost_s=1.0)
    other = suspect("storage", [3], "recv_into")
    first, second = settle([late, held, other], [], RANKS, waited_share=0.1)
    assert (first.cause, first.ranks, first.cost_s) == ("cpu_contention", [1], 2.0)
    assert first.evidence == ["aten::mm takes longer", "recv_into takes longer"]
    assert second == other


def rate(source: int, target: int, mb_s: float, *, mb: float = 40.0) -> LinkRate:
    return LinkRate(
        source=source,
        target=target,
        moved_bytes=int(1e6 * mb),
        busy_s=mb / mb_s,
        elapsed_s=10.0,
        rate_bytes_s=1e6 * mb_s,
    )


def around(*rates: float) -> list[LinkRate]:
    """Return the links of a ring of four, each rank's to the one before it."""
    return [rate(each, (each + 3) % 4, mb_s) for each, mb_s in enumerate(rates)]


UNEVEN = [
    ((10.9, 19.7, 8.6, 6.8), (3, 2)),
    ((11.08, 4.51, 9.0, 30.87), (1, 0)),
    ((11.12, 7.4, 13.17, 22.73), (1, 0)),
    ((12.24, 9.03, 5.75, 7.93), (2, 1)),
    ((7.11, 8.75, 15.01, 12.49), (0, 3)),
    ((5.46, 14.43, 8.19, 3.65), (3, 2)),
]
"""Seeds 2, 6, 7, 11, 12 and 13 of the benchmark: NICs of different speed, and the slowest of their links."""


@pytest.mark.parametrize(("rates", "slowest"), UNEVEN)
def test_the_slowest_of_a_row_of_slow_links_is_not_the_link_that_is_slow(
    rates: tuple[float, ...], slowest: tuple[int, int]
) -> None:
    """All of them are uneven."""
    assert not stands_out([link(*slowest)], around(*rates))


def test_a_link_far_below_all_others_is_the_one() -> None:
    """Who sends to the rank that is held up by it waits, and is no measure (seeds 8 and 9)."""
    assert stands_out([link(3, 2)], around(41.09, 135.98, 144.59, 15.4))
    assert stands_out([link(3, 2)], around(37.23, 125.68, 150.81, 11.84))
    assert stands_out([], around(10.9, 19.7, 8.6, 6.8))
    # Both ways of one pair; the others are hardly busy, and their rates are noisy (seed 21).
    noisy = [
        rate(0, 1, 42.95),
        rate(0, 3, 49.06, mb=60),
        rate(1, 0, 106.28, mb=100),
        rate(2, 1, 145.74, mb=60),
    ]
    assert stands_out([link(3, 2)], [*noisy, rate(2, 3, 19.73), rate(3, 2, 13.35, mb=100)])
    nic = SlowLink(kind="nic", ranks=[2], slowdown=4.0, lost_share=0.3, evidence="slow")
    assert stands_out([nic], [rate(0, 3, 10.0), rate(1, 0, 9.0), rate(2, 1, 2.0), rate(3, 2, 2.5)])
