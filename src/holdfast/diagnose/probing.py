"""Who is slow, by the results of a probe: ranks against ranks, links against links of the same kind.

Results in, suspects out. What is asked and answered travels between a guard and its workers; here only its
shape counts. A rank or link is slow when even its best time is above what the others take in the middle: on
machines that share cores, the best times of healthy ranks lie further apart than the slowdowns looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, Protocol, TypeVar

from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Suspect

COMPUTE_THRESHOLD = 1.1
LINK_THRESHOLD = 1.25
"""Transfers scatter more than products of matrices do."""
MOST_CONFIDENT = 0.99

Link = tuple[int, int]
"""Who sends, who receives."""
Key = TypeVar("Key", bound=Hashable)


class LinkTime(Protocol):
    """How long messages took from one rank to another."""

    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def times_s(self) -> Sequence[float]: ...


class Result(Protocol):
    """What one rank says after a probe."""

    @property
    def rank(self) -> int: ...
    @property
    def outcome(self) -> str: ...
    @property
    def gemm_s(self) -> Sequence[float]: ...
    @property
    def links(self) -> Sequence[LinkTime]: ...
    @property
    def error(self) -> str | None: ...


class Order(Protocol):
    """Who was asked."""

    @property
    def id(self) -> str: ...
    @property
    def ranks(self) -> Sequence[int]: ...


class _Slow(NamedTuple):
    """How one stands against the others."""

    best_s: float
    healthy_s: float
    """Best time of the others, in the middle."""
    excess: float
    """Its best time over the usual time of the others."""
    against: str
    trust: float = 1.0
    """How much of the confidence is left where there is only one other to compare with."""


def judge(
    results: Iterable[Result],
    order: Order,
    *,
    hosts: Mapping[int, str] | None = None,
    reference: Iterable[Result] = (),
) -> list[Suspect]:
    """Return slow ranks and slow links, the surest first.

    Links within a host and between hosts are compared apart; without ``hosts`` all are of one kind. Two ranks
    or links are compared with ``reference``, a probe of the same kind in health, or else with each other.
    """
    asked = [result for result in results if result.rank in order.ranks]
    known = list(reference)
    compute = _slow(_gemms(asked), _gemms(known), COMPUTE_THRESHOLD)
    links: dict[Link, _Slow] = {}
    for kind in _kinds(_links(asked), hosts):
        links |= _slow(kind, _links(known), LINK_THRESHOLD)
    silence = describe_silence(asked, order)
    suspects = [_compute_suspect(rank, slow, silence) for rank, slow in compute.items()]
    suspects += [_link_suspect(link, slow, compute, silence) for link, slow in links.items()]
    return sorted(suspects, key=lambda suspect: (-suspect.confidence, suspect.ranks))


def describe_silence(results: Iterable[Result], order: Order) -> list[str]:
    """Return sentences about the ranks that did not get through; that makes nobody guilty."""
    said = {result.rank: result for result in results}
    absent = [rank for rank in order.ranks if rank not in said]
    told = [f"{name_ranks(absent)} did not answer probe {order.id}"] if absent else []
    for rank in sorted(said):
        if said[rank].outcome != "done":
            told.append(
                f"rank {rank} broke off probe {order.id}: {said[rank].error or 'it does not say why'}"
            )
    return told


def _gemms(results: Iterable[Result]) -> dict[int, Sequence[float]]:
    return {result.rank: result.gemm_s for result in results if _is_timed(result.gemm_s)}


def _links(results: Iterable[Result]) -> dict[Link, Sequence[float]]:
    """Return the times of every link as its receiver saw them, or else its sender."""
    received: dict[Link, Sequence[float]] = {}
    sent: dict[Link, Sequence[float]] = {}
    for result in results:
        for link in result.links:
            if _is_timed(link.times_s):
                side = received if link.target == result.rank else sent
                side[link.source, link.target] = link.times_s
    return sent | received


def _is_timed(times_s: Sequence[float]) -> bool:
    return len(times_s) > 0 and min(times_s) > 0


def _kinds(
    links: Mapping[Link, Sequence[float]], hosts: Mapping[int, str] | None
) -> list[dict[Link, Sequence[float]]]:
    """Split links into those within a host and those between hosts; an unknown host is like no other."""

    def is_inside(link: Link) -> bool:
        ends = [(hosts or {}).get(rank) for rank in link]
        return ends[0] == ends[1] is not None

    inside = {link: times for link, times in links.items() if is_inside(link)}
    return [inside, {link: times for link, times in links.items() if link not in inside}]


def _slow(
    times: Mapping[Key, Sequence[float]], reference: Mapping[Key, Sequence[float]], threshold: float
) -> dict[Key, _Slow]:
    found: dict[Key, _Slow] = {}
    for key in times:
        others = [times[other] for other in times if other != key]
        against, trust = f"the median of {len(others)} others", 1.0
        if len(others) < 2 and key in reference:
            others, against = [reference[key]], "its own in health"
        elif len(others) == 1:  # One unlucky rank of two makes the other look slow.
            against, trust = "the only other", 0.5
        if others:
            best_s, usual_s = min(times[key]), _middle(others, median)
            if best_s > threshold * usual_s:
                found[key] = _Slow(best_s, _middle(others, min), best_s / usual_s, against, trust)
    return found


def _middle(others: Sequence[Sequence[float]], of: Callable[[Sequence[float]], float]) -> float:
    return median(of(each) for each in others)


def _compute_suspect(rank: int, slow: _Slow, silence: list[str]) -> Suspect:
    return Suspect(
        kind="rank",
        ranks=[rank],
        cause="compute",
        slowdown=slow.best_s / slow.healthy_s,
        confidence=_confidence(slow, COMPUTE_THRESHOLD),
        evidence=[f"rank {rank} takes {_say(slow)} for the same product of matrices", *silence],
    )


def _link_suspect(link: Link, slow: _Slow, compute: Mapping[int, _Slow], silence: list[str]) -> Suspect:
    source, target = link
    evidence = [f"a message from rank {source} to rank {target} takes {_say(slow)}"]
    confidence = _confidence(slow, LINK_THRESHOLD)
    ends = [rank for rank in link if rank in compute]
    if ends:  # A worker that gets little CPU time also sends and receives slowly.
        evidence.append(f"{name_ranks(ends)} at its end computes slowly too, which may be all of it")
        confidence /= 2
    return Suspect(
        kind="link",
        ranks=sorted(link),
        link=link,
        cause="link",
        slowdown=slow.best_s / slow.healthy_s,
        confidence=confidence,
        evidence=[*evidence, *silence],
    )


def _confidence(slow: _Slow, threshold: float) -> float:
    """Return 1/2 at the threshold, 3/4 at twice that distance from 1, and so on, as far as it is trusted."""
    return slow.trust * min(MOST_CONFIDENT, 1 - (threshold - 1) / (2 * (slow.excess - 1)))


def _say(slow: _Slow) -> str:
    best_ms, healthy_ms = 1000 * slow.best_s, 1000 * slow.healthy_s
    return f"{best_ms:.3g} ms at best, {best_ms / healthy_ms:.2f} times {slow.against} ({healthy_ms:.3g} ms)"
