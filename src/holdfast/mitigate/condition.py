"""What is wrong with a job, and how its work is arranged around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from holdfast.findings import Suspect

Speeds = tuple[tuple[int, float], ...]
"""Ranks that are not as fast as they should be, with their share of a healthy one's speed, in order."""
_CURABLE = frozenset(
    {"compute", "cpu_contention", "garbage_collection", "host_memory", "data_loading", "storage", "unknown"}
)
"""Causes that make a rank slow at its work; less work helps. Imbalance is the job's own, not a rank's."""


class SlowLink(msgspec.Struct, frozen=True, order=True):
    """Two ranks between which everything takes longer."""

    first: int
    second: int
    factor: float
    """Time over the usual time."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What is known to be wrong; nothing, in a healthy job."""

    speeds: Speeds = ()
    links: tuple[SlowLink, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return not self.speeds and not self.links

    @property
    def culprits(self) -> frozenset[tuple[int, ...]]:
        """Who it is, however bad: ranks, and pairs of them for links."""
        return frozenset(
            [(rank,) for rank, _ in self.speeds] + [(each.first, each.second) for each in self.links]
        )

    def without(self, ranks: Collection[int]) -> Condition:
        """Return what of it is left once some ranks take no part any more."""
        if not ranks:
            return self
        return Condition(
            speeds=tuple(each for each in self.speeds if each[0] not in ranks),
            links=tuple(each for each in self.links if not {each.first, each.second} & set(ranks)),
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """What sort of trouble it is; incidents of a sort last about as long."""
        return ("rank",) * bool(self.speeds) + ("link",) * bool(self.links)


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """How the work is shared out: the plan's idea of who is how fast, who holds which place, who is out."""

    reckoned: Speeds = ()
    """What the plan reckons with; nothing: everybody is equally fast."""
    holders: tuple[int, ...] = ()
    """The rank that holds each place; none: rank r holds place r."""
    without: tuple[int, ...] = ()
    """Ranks that take no part any more."""

    @property
    def is_original(self) -> bool:
        return self == Arrangement()

    def holder(self, place: int) -> int:
        """Return the rank that holds a place."""
        return self.holders[place] if self.holders else place

    def swapped(self, first: int, second: int, places: int) -> Arrangement:
        """Return the same with the holders of two places exchanged."""
        holders = list(self.holders or range(places))
        holders[first], holders[second] = holders[second], holders[first]
        is_plain = holders == list(range(places))
        return msgspec.structs.replace(self, holders=() if is_plain else tuple(holders))


def make_speeds(speeds: Mapping[int, float]) -> Speeds:
    """Return speeds as a condition has them: only those that are not healthy."""
    return tuple(sorted((rank, speed) for rank, speed in speeds.items() if speed < 1.0))


def condition_of(suspects: Iterable[Suspect], *, least: float = 0.0) -> Condition:
    """Return what suspects amount to; those without a slowdown, or of less confidence, are left out."""
    speeds: dict[int, float] = {}
    links: set[SlowLink] = set()
    for suspect in suspects:
        if suspect.slowdown is None or suspect.slowdown <= 1.0 or suspect.confidence < least:
            continue
        if suspect.link is not None:
            first, second = sorted(suspect.link)
            links.add(SlowLink(first, second, suspect.slowdown))
        elif suspect.cause in _CURABLE:
            for rank in suspect.ranks:
                speeds[rank] = min(speeds.get(rank, 1.0), 1 / suspect.slowdown)
    return Condition(speeds=make_speeds(speeds), links=tuple(sorted(links)))
