"""Ranks that came to the same collective and mean different things: another kind, or another size."""

from __future__ import annotations

from collections import defaultdict

from holdfast.diagnose.presence import Place, Standing
from holdfast.diagnose.wording import name_place, name_ranks
from holdfast.findings import Suspect
from holdfast.observe.flightdump import Operation

_SAME_SIZE = ("all_reduce", "allreduce", "broadcast", "reduce")
"""Kinds in which all ranks must bring as much; gathering, scattering and all-to-all may be uneven."""


def find_mismatches(standing: Standing) -> dict[Place, Suspect]:
    """Return who is wrong about the first unfinished collective of each group that is not the same to all."""
    found: dict[str, tuple[Place, Suspect]] = {}
    calls = _calls(standing)
    for place in sorted(calls):
        if place.group in found:
            continue  # One rank ahead by one makes all that follow disagree.
        sides = _sides(calls[place])
        if len(sides) > 1:
            found[place.group] = place, _suspect(standing, place, sides)
    return dict(found.values())


def _calls(standing: Standing) -> dict[Place, dict[int, Operation]]:
    """Return what each rank called at each collective that is not finished everywhere."""
    calls: dict[Place, dict[int, Operation]] = {place: {} for place in standing.kinds if place.src < 0}
    for rank, dump in standing.dumps.items():
        for each in dump.operations:
            place = Place(each.group, each.seq)
            if not each.is_p2p and place in calls:
                calls[place][rank] = each
    return calls


def _sides(calls: dict[int, Operation]) -> dict[str, list[int]]:
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, operation in sorted(calls.items()):
        sides[_intention(operation)].append(rank)
    return dict(sides)


def _intention(operation: Operation) -> str:
    if operation.kind not in _SAME_SIZE:
        return operation.kind
    return f"{operation.kind} of {operation.elements} {'+'.join(operation.dtypes)}".rstrip()


def _suspect(standing: Standing, place: Place, sides: dict[str, list[int]]) -> Suspect:
    by_size = sorted(sides.items(), key=lambda side: (len(side[1]), side[1]))
    is_clear = len(by_size[-1][1]) > sum(len(ranks) for _, ranks in by_size[:-1])
    guilty = by_size[:-1] if is_clear else by_size
    words = "; ".join(f"{name_ranks(ranks)} called {what}" for what, ranks in by_size)
    everyone = {rank for rank, each in standing.pending.items() if each}
    ranks = sorted(rank for _, each in guilty for rank in each)
    return Suspect(
        ranks=ranks,
        cause="hang",
        confidence=0.8 if is_clear else 0.5,
        victims=sorted(everyone - set(ranks)),
        evidence=[f"the ranks disagree about {name_place(standing, place, kind='collective')}: {words}"],
    )
