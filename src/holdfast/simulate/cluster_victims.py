"""Whom to preempt so that a job can start."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.simulate.cluster_pool import Pool


class Occupant(Protocol):
    """An attempt that runs."""

    nodes: list[int]
    each: int

    @property
    def order(self) -> tuple[int, int, float, str]: ...


T = TypeVar("T", bound=Occupant)


def victims_for(
    gpus: int, but: Collection[int], candidates: Sequence[T], on_node: Sequence[Mapping[str, T]], pool: Pool
) -> list[T]:
    """Return the candidates to preempt so that a job fits, the cheapest first; none if that is not enough."""
    ordered = sorted(candidates, key=lambda each: each.order)
    nodes, each = pool.needs(gpus)
    if each < pool.gpus_per_node:
        return _one_for_part(each, but, ordered, pool)
    missing = nodes - sum(node not in but for node in pool.whole)
    allowed = {id(candidate) for candidate in ordered}
    chosen: dict[int, T] = {}
    gained: set[int] = set()
    for candidate in ordered:
        if len(gained) >= missing:
            return list(chosen.values())
        for node in candidate.nodes:
            there = on_node[node].values()
            if node not in gained and node not in but and all(id(other) in allowed for other in there):
                gained.add(node)
                chosen.update((id(other), other) for other in there)
    return list(chosen.values()) if len(gained) >= missing else []


def _one_for_part(each: int, but: Collection[int], ordered: Sequence[T], pool: Pool) -> list[T]:
    """Return one victim beside or instead of which a job fits that needs a part of a node."""
    for candidate in ordered:
        for node in candidate.nodes:
            if node not in but and pool.free[node] + candidate.each >= each:
                return [candidate]
    return []
