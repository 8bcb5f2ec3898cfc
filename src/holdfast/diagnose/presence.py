"""Where every rank of a job that hangs stands: at which operation, and whether it came to those of others.

An operation that several ranks take part in is a ``Place``. Collectives of a group are counted alike by all
its ranks. Point-to-point operations are not: each rank counts its own. So the unfinished sends from one rank
to another are matched with the unfinished receives at the other end, in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from holdfast.observe.flightdump import Dump, Operation

Presence = Literal["done", "pending", "absent", "unknown"]
"""Of a rank at a place; ``absent`` has not enqueued it, ``unknown`` left no dump."""

_SYNCHRONISING = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "all_to_all",
    "alltoall",
    "barrier",
)


class Place(NamedTuple):
    """One operation, whoever takes part in it."""

    group: str
    number: int
    """Of the collective in its group; or the how-manieth unfinished message between its ends."""
    kind: str = ""
    """Empty for collectives: ranks may disagree about theirs."""
    src: int = -1
    dst: int = -1


class Standing:
    """All dumps of a job, side by side."""

    def __init__(self, dumps: Sequence[Dump]) -> None:
        self.dumps = {dump.rank: dump for dump in dumps}
        self.world = _world(dumps)
        self.labels = {name: label for dump in dumps for name, label in dump.labels.items() if label}
        self.members = _members(dumps, self.world)
        self._counts = _counts(dumps)
        self.pending: dict[int, dict[Place, Operation]] = {dump.rank: _places(dump) for dump in dumps}
        """The unfinished operations of each rank, the oldest first."""
        self.kinds: dict[Place, set[str]] = defaultdict(set)
        """What each place that is not finished everywhere is called."""
        self._leavers: dict[Place, list[int]] = {}
        for places in self.pending.values():
            for place, operation in places.items():
                self.kinds[place].add(operation.kind)

    @property
    def missing(self) -> list[int]:
        """The ranks that left no dump."""
        return [rank for rank in self.world if rank not in self.dumps]

    def ranks_at(self, place: Place) -> list[int]:
        """Return who takes part."""
        return [place.src, place.dst] if place.src >= 0 else self.members.get(place.group, [])

    def presence(self, rank: int, place: Place) -> Presence:
        """Return whether a rank has come to a place, and gone from it."""
        if rank not in self.dumps:
            return "unknown"
        if place in self.pending[rank]:
            return "pending"
        count = self.count(rank, place.group)
        if place.src >= 0 or count is None or count < place.number:
            return "absent"
        return "done"  # What is not in the records any more is older than what is.

    def count(self, rank: int, group: str) -> int | None:
        """Return how many collectives of a group a rank has enqueued; None: its dump does not say."""
        return self._counts.get((rank, group))

    def leavers(self, place: Place) -> list[int]:
        """Return who is done with a collective that nobody can leave before all have come."""
        if place not in self._leavers:
            is_for_all = place.src < 0 and all(
                any(word in kind for word in _SYNCHRONISING) for kind in sorted(self.kinds[place])
            )
            ranks = self.ranks_at(place) if is_for_all else []
            self._leavers[place] = [rank for rank in ranks if self.presence(rank, place) == "done"]
        return self._leavers[place]


def _world(dumps: Sequence[Dump]) -> list[int]:
    ranks = {dump.rank for dump in dumps}
    listed = {rank for dump in dumps for group in dump.groups.values() for rank in group}
    # Gloo lists nobody: then the ranks are those up to the highest one seen.
    return sorted(ranks | listed) if listed else list(range(max(ranks, default=-1) + 1))


def _members(dumps: Sequence[Dump], world: list[int]) -> dict[str, list[int]]:
    seen: dict[str, set[int]] = defaultdict(set)
    for dump in dumps:
        for name in (*dump.enqueued, *(each.group for each in dump.operations)):
            seen[name].add(dump.rank)
    listed = {name: ranks for dump in dumps for name, ranks in dump.groups.items()}
    default = {name: world for dump in dumps for name, label in dump.labels.items() if label == "default_pg"}
    return {name: sorted(ranks) for name, ranks in seen.items()} | default | listed


def _counts(dumps: Sequence[Dump]) -> dict[tuple[int, str], int]:
    """Return how many collectives each rank has enqueued in each group.

    A rank's own count is of collectives alone only in groups that send no messages.
    """
    mixed = {
        each.group
        for dump in dumps
        for each in dump.operations
        if each.is_p2p or each.op not in (each.seq, -1)
    }
    counts: dict[tuple[int, str], int] = {}
    for dump in dumps:
        for name, count in dump.enqueued.items():
            if name not in mixed:
                counts[dump.rank, name] = count
        for each in dump.operations:
            key = dump.rank, each.group
            counts[key] = max(counts.get(key, 0), each.seq)
    return counts


def _places(dump: Dump) -> dict[Place, Operation]:
    places: dict[Place, Operation] = {}
    messages: dict[tuple[str, int, int], int] = defaultdict(int)
    for each in dump.pending:
        if each.src is not None and each.dst is not None:
            ends = each.group, each.src, each.dst
            place = Place(each.group, messages[ends], "message", each.src, each.dst)
            messages[ends] += 1
        else:
            place = Place(each.group, each.seq)
        places[place] = each
    return places
