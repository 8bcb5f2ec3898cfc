"""All that profiles of a job say, as one value: what the terminal, the JSON, the page and the bundle show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from holdfast.detect.links import LinkRate
from holdfast.diagnose.links import SlowLink, find_slow_links
from holdfast.diagnose.reduce import Known, WorkerPattern
from holdfast.diagnose.verdict import Verdict, judge_profiles
from holdfast.telemetry import Channel

_FAR = 3.0
"""So many times as long as any other a link is busy that alone holds up the job."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles of a job, and what was found in them."""

    verdict: Verdict
    workers: list[WorkerPattern]
    known: Mapping[int, Known]
    groups: Mapping[int, Sequence[Channel]]
    hosts: Mapping[int, str] = {}
    usage: Mapping[int, Mapping[str, float]] = {}
    """Mean use of resources by each rank, per second: cpu, communication, faults, network, device."""
    traces: Mapping[int, str] = {}
    """File of each rank's trace, where it is at hand."""
    unread: Sequence[str] = ()
    """Why files could not be read."""
    about: str = ""
    """When it was profiled and why, as a clause; empty: nobody told."""
    blocked_s: float | None = None
    """For how long training stood still because of it, at most."""


def make_case(
    workers: Sequence[WorkerPattern],
    known: Mapping[int, Known],
    groups: Mapping[int, Sequence[Channel]],
    world_size: int | None = None,
    links: Sequence[LinkRate] = (),
) -> Case:
    """Judge profiles; ``links`` are the rates of connections meanwhile."""
    slow = find_slow_links(links, None)
    verdict = judge_profiles(workers, known, groups, world_size, slow if stands_out(slow, links) else [])
    return Case(verdict=verdict, workers=list(workers), known=known, groups=groups)


def stands_out(slow: Sequence[SlowLink], links: Sequence[LinkRate]) -> bool:
    """Say whether slow links are busy for longer than all others by far; else all of them are uneven.

    Seconds, not rates: those of links that are hardly busy are noisy, and do not matter.
    """
    named = {frozenset(pair) for each in slow for pair in combinations(each.ranks, 2)}
    alone = {each.ranks[0] for each in slow if len(each.ranks) == 1}
    held = {each.link[0] for each in slow if each.link is not None}
    busy: dict[bool, list[float]] = {True: [], False: []}
    for link in links:
        if link.rate_bytes_s:
            ends = frozenset((link.source, link.target))
            is_named = ends in named or bool(ends & alone)
            if is_named or link.target not in held:  # Who sends to a rank that is held up waits for it.
                busy[is_named].append(link.busy_s)
    if not busy[True] or not busy[False]:
        return True
    return max(busy[True]) >= _FAR * max(busy[False])


def with_hosts(case: Case, hosts: Mapping[int, str]) -> Case:
    """Say where suspects are."""
    told = [
        msgspec.structs.replace(each, hosts=sorted({hosts[rank] for rank in each.ranks if rank in hosts}))
        for each in case.verdict.suspects
    ]
    verdict = msgspec.structs.replace(case.verdict, suspects=told)
    return msgspec.structs.replace(case, verdict=verdict, hosts=hosts)
