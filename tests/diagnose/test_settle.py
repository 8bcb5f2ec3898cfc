"""Settling: which link it is, and one suspect for what holds a rank up in all that it does."""

from __future__ import annotations

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
