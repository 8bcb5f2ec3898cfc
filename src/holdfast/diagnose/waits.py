"""Who waits for whom: a graph of ranks and places, and where following it ends.

A rank points at the place where it is; a place points at the ranks that have not come there yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.diagnose.presence import Place, Standing

Node = int | Place
"""A rank or a place."""


class Waits(NamedTuple):
    """The graph.

    A soft edge is a wait that need not be one: that a message was taken, or that a rank without a dump
    stands where its group stands. It counts unless it goes round in a circle.
    """

    hard: dict[Node, set[Node]]
    soft: dict[Node, set[Node]]

    def edges(self, hardened: Collection[Node] = ()) -> dict[Node, set[Node]]:
        """Return what each node waits for; of ``hardened`` nodes only what is certain."""
        after = [*self.hard.values(), *self.soft.values()]
        nodes = {*self.hard, *self.soft, *(each for targets in after for each in targets)}
        return {
            node: self.hard.get(node, set()) | (set() if node in hardened else self.soft.get(node, set()))
            for node in sorted(nodes, key=str)
        }


class Ends(NamedTuple):
    """Where following the waits ends."""

    leaves: list[Node]
    """What waits for nothing."""
    circles: list[list[Node]]
    edges: dict[Node, set[Node]]
    """What was followed."""


def fronts(standing: Standing, rank: int) -> list[Place]:
    """Return where a rank is: at its oldest unfinished operation; behind a send, also at the first other.

    The host runs ahead of the device, so what was enqueued later says nothing.
    """
    places = list(standing.pending.get(rank, ()))
    if not places or places[0].src != rank:
        return places[:1]
    return [places[0], *[place for place in places if place.src != rank][:1]]


def build(standing: Standing, freed: Collection[int]) -> Waits:
    """Return who waits for whom; ``freed`` ranks are known to wait for nobody."""
    waits = Waits(hard=defaultdict(set), soft=defaultdict(set))
    at = {rank: fronts(standing, rank) for rank in sorted(standing.dumps)}
    for rank, places in at.items():
        for place in places if rank not in freed else ():
            (waits.soft if place.src == rank else waits.hard)[rank].add(place)
    for place in dict.fromkeys(place for places in at.values() for place in places):
        _add_absentees(waits, standing, place, at, freed)
    _excuse_missing(waits, standing, at, freed)
    return waits


def _add_absentees(
    waits: Waits, standing: Standing, place: Place, at: Mapping[int, list[Place]], freed: Collection[int]
) -> None:
    unknown = []
    for rank in standing.ranks_at(place):
        presence = standing.presence(rank, place)
        if presence == "unknown":
            unknown.append(rank)
        elif presence == "absent" or (presence == "pending" and (rank in freed or place not in at[rank])):
            waits.hard[place].add(rank)
        elif presence == "pending" and at[rank][0] != place:
            waits.soft[place].add(rank)
    if waits.hard[place]:  # Then a rank without a dump may well be here, waiting like the others.
        for rank in unknown:
            waits.soft[rank].add(place)
    else:
        waits.hard[place].update(unknown)


def _excuse_missing(
    waits: Waits, standing: Standing, at: Mapping[int, list[Place]], freed: Collection[int]
) -> None:
    """Let ranks without a dump wait for those that have not come to an operation with them."""
    missing = set(standing.missing)
    for rank, pending in standing.pending.items() if missing else ():
        for place in pending:
            if rank in freed or place not in at[rank]:
                for other in sorted(missing.intersection(standing.ranks_at(place))):
                    waits.soft[other].add(rank)


def ends(waits: Waits, missing: Collection[int]) -> Ends:
    """Follow the waits to where they end; soft ones are dropped where they lead nowhere, or from one missing
    rank to another.
    """
    edges = waits.edges()
    known = [leaf for leaf in _leaves(edges) if leaf not in missing]
    excused = reaching(known, edges)
    hardened: set[Node] = {rank for rank in missing if rank not in excused}
    edges = waits.edges(hardened)
    hardened |= set(edges) - reaching(_leaves(edges), edges)
    edges = waits.edges(hardened)
    return Ends(leaves=_leaves(edges), circles=_circles(edges), edges=edges)


def _circles(edges: Mapping[Node, Collection[Node]]) -> list[list[Node]]:
    circles = []
    left = set(edges) - reaching(_leaves(edges), edges)
    while left:
        circle = min((_reached(node, edges) for node in sorted(left, key=str)), key=len)
        circles.append(sorted(circle, key=str))
        left -= reaching(circle, edges)
    return circles


def _leaves(edges: Mapping[Node, Collection[Node]]) -> list[Node]:
    return sorted((node for node, after in edges.items() if not after), key=str)


def _reached(node: Node, edges: Mapping[Node, Collection[Node]]) -> set[Node]:
    found, todo = {node}, [node]
    while todo:
        for each in edges[todo.pop()]:
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


def reaching(targets: Iterable[Node], edges: Mapping[Node, Collection[Node]]) -> set[Node]:
    """Return every node from which one of the targets can be reached, the targets included."""
    before: dict[Node, list[Node]] = defaultdict(list)
    for node, after in edges.items():
        for each in after:
            before[each].append(node)
    found, todo = set(targets), list(targets)
    while todo:
        for node in before[todo.pop()]:
            if node not in found:
                found.add(node)
                todo.append(node)
    return found
