"""Which link, NIC or network is slow, from the rates of all links of a job now and when it was healthy.

A link is slow if its rate is far below that of the others, and below its own when it was healthy, and if that
costs a relevant share of the time. Senders also wait for late receivers (see ``holdfast.detect.links``), up
to 40 ms each time. Time that this may explain is not held against a link: a rank that computes slowly must
not make the links to it look slow. So in a job of more than ten steps a second little can be told.

A rank most of whose links to two peers or more are slow has a slow NIC. In a ring a NIC that is slow in one
direction only is told as the one link that it uses.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.diagnose.wording import name_ranks

LinkKind = Literal["nic", "link", "network"]
BELOW_OTHERS = 1.5
"""So many times slower than the median of the others is slow."""
BELOW_HEALTHY = 1.3
"""And so many times slower than it was."""
LEAST_SHARE = 0.1
"""Of the elapsed time, lost on the link."""
DELAYED_ACK_S = 0.04
"""The kernel's TCP_DELACK_MIN; it waits longer only for links whose round trip is longer."""
_SHADOW = 0.4
"""A link that costs less than this share of the worst may be slow because of that: who sends to a rank that
is held up waits for it. It is told when the worst is gone."""


class Rate(Protocol):
    """What is asked of a measured link, see ``holdfast.detect.links.LinkRate``."""

    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def moved_bytes(self) -> int: ...
    @property
    def busy_s(self) -> float: ...
    @property
    def elapsed_s(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def delayed_acks(self) -> int: ...
    @property
    def rate_bytes_s(self) -> float | None: ...
    @property
    def is_local(self) -> bool: ...


class SlowLink(msgspec.Struct, frozen=True, kw_only=True):
    """A slow part of the network."""

    kind: LinkKind
    ranks: list[int]
    """The rank of the NIC, the two of the link, all of the network."""
    link: tuple[int, int] | None = None
    """The slow direction, the slower one if both are."""
    slowdown: float
    """The rate when healthy, else the median rate of the others, over the rate now."""
    lost_share: float
    """Of the elapsed time, on its slowest link."""
    evidence: str
    """A sentence with the numbers."""


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A link and what it is compared with."""

    ends: tuple[int, int]
    now: float
    """Bytes per second."""
    others: float | None
    healthy: float | None
    busy_s: float
    late_s: float
    """Part of that, which late receivers may explain."""
    moved_bytes: int
    elapsed_s: float

    @property
    def reference(self) -> float:
        """What the rate should be."""
        reference = self.healthy or self.others
        assert reference is not None
        return reference

    @property
    def lost_share(self) -> float:
        """The share of the time that the link lost for certain."""
        return (self.busy_s - self.late_s - self.moved_bytes / self.reference) / self.elapsed_s

    @property
    def slowdown(self) -> float:
        """How much slower it is than it should be."""
        return self.reference / self.now

    def is_below(self, rate: float | None, factor: float) -> bool:
        """Say whether it is slower than a rate by more than a factor; than an unknown rate it is."""
        return rate is None or factor * self.now < rate

    def is_slow(self) -> bool:
        """Say whether it is slow by all that is known."""
        is_below = self.is_below(self.others, BELOW_OTHERS) and self.is_below(self.healthy, BELOW_HEALTHY)
        return is_below and self.lost_share >= LEAST_SHARE

    def has_slowed(self) -> bool:
        """Say whether it is much slower than it was, whatever the others do."""
        is_below = self.healthy is not None and self.is_below(self.healthy, BELOW_OTHERS)
        return is_below and self.lost_share >= LEAST_SHARE


def find_slow_links(rates: Sequence[Rate], healthy: Sequence[Rate] | None) -> list[SlowLink]:
    """Return what is slow in the network of a job, the costliest first; ``healthy`` are rates from before."""
    judged = _judge(rates, healthy or ())
    ranks = sorted({rank for each in judged for rank in each.ends})
    if judged and all(each.has_slowed() for each in judged):
        return [_blame_link(judged) if len(ranks) == 2 else _blame_network(ranks, judged)]
    slow = _without_shadows([each for each in judged if each.is_slow()])
    found = []
    for rank in _slow_nics(judged, slow):
        found.append(_blame_nic(rank, [each for each in slow if rank in each.ends]))
        slow = [each for each in slow if rank not in each.ends]
    pairs = sorted({(min(each.ends), max(each.ends)) for each in slow})
    found += [_blame_link([each for each in slow if set(each.ends) == set(pair)]) for pair in pairs]
    return sorted(found, key=lambda each: (-each.lost_share, each.ranks))


# --- judging ----------------------------------------------------------------------------------


def _judge(rates: Sequence[Rate], healthy: Sequence[Rate]) -> list[_Judged]:
    """Return the links that can be compared with something."""
    known = {(each.source, each.target): each for each in healthy if each.rate_bytes_s is not None}
    judged = []
    for rate in rates:
        before = known.get((rate.source, rate.target))
        others = _median_of_others(rate, rates, known)
        if rate.rate_bytes_s is None or rate.elapsed_s <= 0 or (others is None and before is None):
            continue
        judged.append(
            _Judged(
                ends=(rate.source, rate.target),
                now=rate.rate_bytes_s,
                others=others,
                healthy=None if before is None else before.rate_bytes_s,
                busy_s=rate.busy_s,
                late_s=_late_s(rate, before),
                moved_bytes=rate.moved_bytes,
                elapsed_s=rate.elapsed_s,
            )
        )
    return judged


def _median_of_others(
    rate: Rate, rates: Sequence[Rate], known: Mapping[tuple[int, int], Rate]
) -> float | None:
    """Return the rate that the other links let expect of this one.

    Where healthy rates are known, links of different speed are compared by what is left of each. Else only
    links of one kind are compared: within a host, or between hosts. With half of the others slow the upper
    median is still healthy.
    """
    others = [each for each in rates if each is not rate and each.rate_bytes_s is not None]
    own = known.get((rate.source, rate.target))
    if own is not None and own.rate_bytes_s is not None:
        left = list(_shares_left(others, known))
        return statistics.median_high(left) * own.rate_bytes_s if left else None
    alike = [each.rate_bytes_s for each in others if each.is_local == rate.is_local and each.rate_bytes_s]
    return statistics.median_high(alike) if alike else None


def _shares_left(rates: Sequence[Rate], known: Mapping[tuple[int, int], Rate]) -> Iterator[float]:
    for rate in rates:
        before = known.get((rate.source, rate.target))
        if before is not None and before.rate_bytes_s and rate.rate_bytes_s:
            yield rate.rate_bytes_s / before.rate_bytes_s


def _late_s(rate: Rate, before: Rate | None) -> float:
    """Return how much of the busy time late receivers may explain.

    In every step the receiver may have been late once, for less than the kernel's patience. Where that ran
    out it was counted, together with those of all others on the host, who may chat all the time.
    """
    usual = 0.0
    if before is not None and before.elapsed_s > 0:
        usual = before.delayed_acks / before.elapsed_s * rate.elapsed_s
    return DELAYED_ACK_S * max(float(rate.steps), rate.delayed_acks - usual)


def _without_shadows(slow: Sequence[_Judged]) -> list[_Judged]:
    worst = max((each.lost_share for each in slow), default=0.0)
    return [each for each in slow if each.lost_share >= _SHADOW * worst]


def _slow_nics(judged: Sequence[_Judged], slow: Sequence[_Judged]) -> list[int]:
    """Return the ranks most of whose links are slow, those with the most slow links first."""
    left, found = list(slow), list[int]()
    while True:
        ranks = {rank for each in left for rank in each.ends}
        guilty = [rank for rank in sorted(ranks) if _is_slow_nic(rank, judged, left)]
        if not guilty:
            return found
        worst = max(guilty, key=lambda rank: (sum(rank in each.ends for each in left), -rank))
        found.append(worst)
        left = [each for each in left if worst not in each.ends]


def _is_slow_nic(rank: int, judged: Sequence[_Judged], slow: Sequence[_Judged]) -> bool:
    """Say whether most of the links out of a rank, into it, or both, are slow, and to several peers."""
    for ends in ((0,), (1,), (0, 1)):
        links = [each for each in judged if any(each.ends[end] == rank for end in ends)]
        bad = [each for each in slow if any(each.ends[end] == rank for end in ends)]
        peers = {peer for each in bad for peer in each.ends if peer != rank}
        if len(peers) >= 2 and 2 * len(bad) > len(links):
            return True
    return False


# --- in words ---------------------------------------------------------------------------------


def _blame_nic(rank: int, links: Sequence[_Judged]) -> SlowLink:
    worst = max(links, key=lambda each: each.lost_share)
    return SlowLink(
        kind="nic",
        ranks=[rank],
        slowdown=statistics.median(each.slowdown for each in links),
        lost_share=worst.lost_share,
        evidence=f"{len(links)} links of rank {rank} are slow; {_describe(worst)}",
    )


def _blame_link(directions: Sequence[_Judged]) -> SlowLink:
    worst = max(directions, key=lambda each: each.lost_share)
    both = " both directions are slow;" if len(directions) > 1 else ""
    return SlowLink(
        kind="link",
        ranks=sorted(worst.ends),
        link=worst.ends,
        slowdown=worst.slowdown,
        lost_share=worst.lost_share,
        evidence=f"{both} {_describe(worst)}".strip(),
    )


def _blame_network(ranks: list[int], links: Sequence[_Judged]) -> SlowLink:
    worst = max(links, key=lambda each: each.lost_share)
    return SlowLink(
        kind="network",
        ranks=ranks,
        slowdown=statistics.median(each.slowdown for each in links),
        lost_share=worst.lost_share,
        evidence=f"all {len(links)} links of {name_ranks(ranks)} are slower than before; {_describe(worst)}",
    )


def _describe(link: _Judged) -> str:
    """Return ``rank 1 to rank 0 sends 20 MB/s while it is busy, 200 MB/s when healthy, …``."""
    words = [f"rank {link.ends[0]} to rank {link.ends[1]} sends {link.now / 1e6:.3g} MB/s while it is busy"]
    if link.healthy is not None:
        words.append(f"{link.healthy / 1e6:.3g} MB/s when healthy")
    if link.others is not None:
        words.append(f"{link.others / 1e6:.3g} MB/s by what the other links do")
    return f"{', '.join(words)}, and loses {100 * link.lost_share:.0f} % of the time"
