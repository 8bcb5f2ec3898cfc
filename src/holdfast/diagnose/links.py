"""Which link, NIC or network is slow, from the rates of all links of a job now and when it was healthy.

A link is slow if its rate is far below that of the others, and below its own when it was healthy, and if that
costs a relevant share of the time. Senders also wait for late receivers (see ``holdfast.detect.links``), up
to 40 ms each time. Time that this may explain is not held against a link: a rank that computes slowly must
not make the links to it look slow. So in a job of more than ten steps a second little can be told, unless it
is known that no rank is late: then less is enough.

A rank most of whose links to two peers or more are slow has a slow NIC. In a ring a NIC that is slow in one
direction only is told as the one link that it uses.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.detect.links import LinkRate
from holdfast.diagnose.wording import name_ranks

LinkKind = Literal["nic", "link", "network"]
BELOW_OTHERS = 1.5
"""So many times slower than the median of the others is slow."""
BELOW_HEALTHY = 1.3
"""And so many times slower than it was."""
LEAST_SHARE, LEAST_SHARE_ALONE = 0.1, 0.05
"""Of the elapsed time, lost on the link; the second where no receiver was late."""
DELAYED_ACK_S = 0.04
"""The kernel's TCP_DELACK_MIN; it waits longer only for links whose round trip is longer."""
_SHADOW, _SHADOW_NEAR = 0.6, 0.8
"""A link that costs less than this share of the worst may be slow because of that: who sends to a rank that
is held up waits for it, its neighbours most. It is told when the worst is gone."""


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
    """A link and what it is compared with, in bytes per second."""

    rate: LinkRate
    now: float
    others: float | None
    healthy: float | None
    late_s: float
    """Part of the busy time, which late receivers may explain."""
    least_share: float

    @property
    def ends(self) -> tuple[int, int]:
        """Source and target."""
        return self.rate.source, self.rate.target

    @property
    def reference(self) -> float:
        """What the rate should be."""
        reference = self.healthy or self.others
        assert reference is not None
        return reference

    @property
    def lost_share(self) -> float:
        """The share of the time that the link lost for certain."""
        lost_s = self.rate.busy_s - self.late_s - self.rate.moved_bytes / self.reference
        return min(1.0, lost_s / self.rate.elapsed_s)  # Several connections can be busy at once.

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
        return is_below and self.lost_share >= self.least_share

    def has_slowed(self) -> bool:
        """Say whether it is much slower than it was, whatever the others do."""
        is_below = self.healthy is not None and self.is_below(self.healthy, BELOW_OTHERS)
        return is_below and self.lost_share >= self.least_share


def find_slow_links(
    rates: Sequence[LinkRate], healthy: Sequence[LinkRate] | None, *, is_nobody_late: bool = False
) -> list[SlowLink]:
    """Return what is slow in the network of a job, the costliest first; ``healthy`` are rates from before.

    Where nobody is late, nobody's own time explains what links lose.
    """
    judged = _judge(rates, healthy or (), is_nobody_late=is_nobody_late)
    ranks = sorted({rank for each in judged for rank in each.ends})
    if judged and all(each.has_slowed() for each in judged):
        return [_blame_link(judged) if len(ranks) == 2 else _blame_network(ranks, judged)]
    slow = _without_shadows([each for each in judged if each.is_slow()])
    found = []
    for rank in _slow_nics(judged, slow):
        mine = [each for each in slow if rank in each.ends]
        if mine:  # Else they were shadows of one before.
            found.append(_blame_nic(rank, mine))
        slow = [each for each in _alike(slow) if rank not in each.ends]
    pairs = sorted({(min(each.ends), max(each.ends)) for each in slow})
    found += [_blame_link([each for each in slow if set(each.ends) == set(pair)]) for pair in pairs]
    return sorted(found, key=lambda each: (-each.lost_share, each.ranks))


# --- judging ----------------------------------------------------------------------------------


def _judge(rates: Sequence[LinkRate], healthy: Sequence[LinkRate], *, is_nobody_late: bool) -> list[_Judged]:
    """Return the links that can be compared with something.

    Where healthy rates are known, links of different speed are compared by what is left of each, and with the
    quarter that kept most: in a small ring one bad NIC makes half of the links slow, and others wait for it.
    Else only links of one kind are compared: within a host, or between hosts.
    """
    measured = [(rate, rate.rate_bytes_s) for rate in rates if rate.rate_bytes_s and rate.elapsed_s > 0]
    known = {(each.source, each.target): each for each in healthy if each.rate_bytes_s and each.elapsed_s > 0}
    shares = sorted(now / was for rate, now in measured if (was := _rate_before(rate, known)))
    alike = {
        is_local: sorted(now for rate, now in measured if rate.is_local == is_local)
        for is_local in (False, True)
    }
    judged = []
    for rate, now in measured:
        was = _rate_before(rate, known)
        others = _of_others(shares, now / was, 0.75) if was else _of_others(alike[rate.is_local], now, 0.5)
        if others is not None or was is not None:
            late_s = 0.0 if is_nobody_late else _late_s(rate, known.get((rate.source, rate.target)))
            judged.append(
                _Judged(
                    rate=rate,
                    now=now,
                    others=None if others is None else others * (was or 1.0),
                    healthy=was,
                    late_s=late_s,
                    least_share=LEAST_SHARE_ALONE if is_nobody_late else LEAST_SHARE,
                )
            )
    return judged


def _rate_before(rate: LinkRate, known: Mapping[tuple[int, int], LinkRate]) -> float | None:
    before = known.get((rate.source, rate.target))
    return None if before is None else before.rate_bytes_s


def _of_others(values: Sequence[float], own: float, quantile: float) -> float | None:
    """Return a quantile of sorted values without one of them, the upper of two: healthy if half are slow."""
    if len(values) < 2:
        return None
    place = math.ceil(quantile * (len(values) - 2))
    return values[place if place < bisect.bisect_left(values, own) else place + 1]


def _late_s(rate: LinkRate, before: LinkRate | None) -> float:
    """Return how much of the busy time late receivers may explain.

    In every step the receiver may have been late once, for less than the kernel's patience. Where that ran
    out it was counted, together with those of all others on the host, who may chat all the time.
    """
    usual = 0.0 if before is None else before.delayed_acks / before.elapsed_s * rate.elapsed_s
    return DELAYED_ACK_S * max(rate.steps, rate.delayed_acks - usual)


def _without_shadows(slow: Sequence[_Judged]) -> list[_Judged]:
    if not slow:
        return []
    worst = max(slow, key=lambda each: each.lost_share)
    return [each for each in slow if each.lost_share >= _least_beside(each, worst) * worst.lost_share]


def _least_beside(link: _Judged, worst: _Judged) -> float:
    """Return what share of the worst a link has to lose: more if it ends where that one does."""
    return _SHADOW_NEAR if len({*link.ends, *worst.ends}) == 3 else _SHADOW


def _alike(slow: Sequence[_Judged]) -> list[_Judged]:
    worst = max((each.lost_share for each in slow), default=0.0)
    return [each for each in slow if each.lost_share >= _SHADOW_NEAR * worst]


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
        # All alike: one slow link makes the others of its ends wait, and these lose less.
        bad = _alike(bad)
        peers = {peer for each in bad for peer in each.ends if peer != rank}
        if len(peers) >= 2 and 2 * len(bad) > len(links):
            return True
    return False


# --- in words ---------------------------------------------------------------------------------


def _blame_nic(rank: int, links: Sequence[_Judged]) -> SlowLink:
    return _blame("nic", [rank], links, f"{len(links)} links of rank {rank} are slow: ")


def _blame_link(links: Sequence[_Judged]) -> SlowLink:
    return _blame("link", sorted(links[0].ends), links, "both directions are slow: " if links[1:] else "")


def _blame_network(ranks: list[int], links: Sequence[_Judged]) -> SlowLink:
    return _blame("network", ranks, links, f"the whole network of {name_ranks(ranks)} got slower: ")


def _blame(kind: LinkKind, ranks: list[int], links: Sequence[_Judged], words: str) -> SlowLink:
    worst = max(links, key=lambda each: each.lost_share)
    return SlowLink(
        kind=kind,
        ranks=ranks,
        link=worst.ends if kind == "link" else None,
        slowdown=statistics.median(each.slowdown for each in links),
        lost_share=worst.lost_share,
        evidence=words + _describe(worst),
    )


def _describe(link: _Judged) -> str:
    """Return ``rank 1 to rank 0 sends 20 MB/s while it is busy, 200 MB/s when healthy, …``."""
    words = [f"rank {link.ends[0]} to rank {link.ends[1]} sends {link.now / 1e6:.3g} MB/s while it is busy"]
    if link.healthy is not None:
        words.append(f"{link.healthy / 1e6:.3g} MB/s when healthy")
    if link.others is not None:
        words.append(f"{link.others / 1e6:.3g} MB/s by what the other links do")
    return f"{', '.join(words)}, and loses {100 * link.lost_share:.0f} % of the time"
