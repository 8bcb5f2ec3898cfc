"""Which ranks and hosts stand out: own time over the median, the slowest first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from holdfast.metrics.seen import Pace

_Who = TypeVar("_Who", int, str)

OTHERS = "others"
"""In place of a host: all that are not shown by themselves."""


class Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer than the median they need for themselves."""

    ranks: tuple[tuple[int, float], ...] = ()
    hosts: tuple[tuple[str, float], ...] = ()
    omitted_hosts: int = 0
    omitted_ratio: float | None = None
    """Mean of the hosts that are not shown."""


def find_slowest(
    paces: Sequence[Pace], hosts: Mapping[int, str], *, most_ranks: int, most_hosts: int
) -> Ratios:
    """Return the slowest ranks and hosts; nobody where own times were not measured."""
    own = {pace.rank: pace.own_s for pace in paces if pace.own_s is not None and pace.own_s > 0}
    if not own:
        return Ratios()
    median_s = statistics.median(own.values())
    ranks = {rank: own_s / median_s for rank, own_s in own.items()}
    by_host: dict[str, list[float]] = {}
    for rank, ratio in ranks.items():
        by_host.setdefault(hosts.get(rank, ""), []).append(ratio)
    told = _sort({host: statistics.median(ratios) for host, ratios in by_host.items() if host})
    rest = [ratio for _, ratio in told[most_hosts:]]
    return Ratios(
        ranks=tuple(_sort(ranks)[:most_ranks]),
        hosts=tuple(told[:most_hosts]),
        omitted_hosts=len(rest),
        omitted_ratio=statistics.fmean(rest) if rest else None,
    )


def _sort(ratios: Mapping[_Who, float]) -> list[tuple[_Who, float]]:
    return sorted(ratios.items(), key=lambda item: (-item[1], item[0]))
