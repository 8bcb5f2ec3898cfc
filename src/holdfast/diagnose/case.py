"""All that profiles of a job say, as one value: what the terminal, the JSON, the page and the bundle show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.detect.links import LinkRate
from holdfast.diagnose.links import find_slow_links
from holdfast.diagnose.reduce import Known, WorkerPattern
from holdfast.diagnose.verdict import Verdict, judge_profiles
from holdfast.telemetry import Channel


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
    verdict = judge_profiles(workers, known, groups, world_size, find_slow_links(links, None))
    return Case(verdict=verdict, workers=list(workers), known=known, groups=groups)


def with_hosts(case: Case, hosts: Mapping[int, str]) -> Case:
    """Say where suspects are."""
    told = [
        msgspec.structs.replace(each, hosts=sorted({hosts[rank] for rank in each.ranks if rank in hosts}))
        for each in case.verdict.suspects
    ]
    verdict = msgspec.structs.replace(case.verdict, suspects=told)
    return msgspec.structs.replace(case, verdict=verdict, hosts=hosts)
