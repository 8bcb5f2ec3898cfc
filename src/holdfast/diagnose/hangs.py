"""The guilty ranks of a hang, from the Flight Recorder dumps of all ranks.

Guilty is a rank that others wait for and that itself waits for nobody. When dumps are written, a job has hung
for minutes: whoever could get on has done so. The rule:

1. A rank is at its *oldest unfinished* operation. The host runs ahead of the device, so what it enqueued
   behind that says nothing. An unfinished send holds nobody up for certain, so behind one a rank is also at
   the first operation that is no send.
2. An operation waits for those of its ranks that did not enqueue it, and for those that did but are at an
   older one. A rank whose dump is missing is waited for only if there is nobody else to wait for.
3. Follow the waits. They end at

   a. a rank with nothing unfinished that did not come: its host is stuck;
   b. a rank that is still in a collective which another rank has left, though nobody can leave it before
      all have come (all-reduce and the like): its device is stuck or gone. It waits for nobody, whatever
      else it has enqueued;
   c. a rank whose device has not begun the collective that the devices of its peers are inside of, where
      timing is recorded. It waits for nobody either;
   d. a rank without a dump: perhaps dead;
   e. an operation to which everybody came, and which does not end. One of its ranks, or the network between
      them, is to blame, and nothing in the dumps says which: one suspect with all of them, of low confidence;
   f. a circle. Waits that need not be real are dropped from it: for a send to be taken, and of a rank without
      a dump that may stand where its group stands. If it holds, its ranks are one suspect of low confidence.

4. Every rank from which a suspect can be reached is its victim.

A rank of kind a, b or c is guilty even if no wait leads to it: those who wait for it may first wait for
another. Collectives about which their ranks disagree are told separately, and explain e.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.diagnose.mismatches import find_mismatches
from holdfast.diagnose.presence import Place, Standing
from holdfast.diagnose.waits import Node, build, ends, fronts, reaching
from holdfast.diagnose.wording import name_place, name_ranks
from holdfast.findings import Cause, Suspect
from holdfast.observe.flightdump import Dump


class Hang(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to blame, who waits, and who left no dump."""

    suspects: list[Suspect]
    victims: list[int]
    missing: list[int]
    world_size: int


def diagnose_hang(dumps: Sequence[Dump]) -> Hang:
    """Return the guilty ranks of a job that hangs; no suspects if nothing can be said."""
    standing = Standing(dumps)
    lost, late = _lost(standing), _late(standing)
    idle = _idle(standing, lost)
    leaves, circles, edges = ends(build(standing, freed={*lost, *late}), standing.missing)
    mismatches = find_mismatches(standing)
    found = list(mismatches.values())
    known = {*lost, *late, *idle}
    for rank in sorted(known | {leaf for leaf in leaves if isinstance(leaf, int)}):
        if rank in standing.dumps:
            found.append(_blame(standing, rank, lost, late, idle))
        else:
            found.append(_blame_missing(rank, is_needed=not known))
    for leaf in leaves:
        if isinstance(leaf, Place) and leaf not in mismatches:
            found.append(_blame_place(standing, leaf))
    found += [_blame_circle(standing, circle) for circle in circles]
    return _conclude(standing, found, edges)


def _conclude(standing: Standing, found: list[Suspect], edges: Mapping[Node, set[Node]]) -> Hang:
    guilty = {rank for suspect in found for rank in suspect.ranks}
    suspects = []
    for suspect in sorted(found, key=lambda each: (-each.confidence, each.ranks)):
        places: list[Node] = [
            place for rank in suspect.ranks for place in edges.get(rank, ()) if len(suspect.ranks) > 1
        ]
        waiting = {node for node in reaching([*suspect.ranks, *places], edges) if node in standing.dumps}
        victims = sorted({*suspect.victims, *waiting} - guilty)
        suspects.append(msgspec.structs.replace(suspect, victims=victims))
    waiting = {rank for rank, pending in standing.pending.items() if pending}
    return Hang(
        suspects=suspects,
        victims=sorted(waiting - guilty),
        missing=standing.missing,
        world_size=len(standing.world),
    )


# --- ranks that wait for nobody ---------------------------------------------------------------


def _lost(standing: Standing) -> dict[int, Place]:
    """Return the ranks that are still in a collective which others have left, and the first of those."""
    firsts = {
        rank: next((place for place in pending if standing.leavers(place)), None)
        for rank, pending in standing.pending.items()
    }
    return {rank: place for rank, place in firsts.items() if place is not None}


def _late(standing: Standing) -> dict[int, Place]:
    """Return the ranks whose device has not begun what the devices of others are inside of."""
    late = {}
    for rank, pending in standing.pending.items():
        for place in fronts(standing, rank)[:1]:
            others = (standing.pending.get(each, {}).get(place) for each in standing.ranks_at(place))
            if not pending[place].is_started and any(each is not None and each.is_started for each in others):
                late[rank] = place
    return late


def _idle(standing: Standing, lost: Collection[int]) -> dict[int, Place]:
    """Return the ranks that have nothing unfinished, and where most others wait for each of them.

    What a lost rank has not finished may have been over for long.
    """
    waiting = [rank for rank in standing.pending if rank not in lost]
    crowds = Counter(place for rank in waiting for place in fronts(standing, rank))
    behind = sorted({place for rank in waiting for place in standing.pending[rank]})
    idle: dict[int, Place] = {}
    for place in [*sorted(crowds, key=lambda each: (-crowds[each], each)), *behind]:
        for rank in standing.ranks_at(place):
            is_free = rank not in idle and not standing.pending.get(rank, True)
            if is_free and standing.presence(rank, place) == "absent":
                idle[rank] = place
    return idle


# --- in words ---------------------------------------------------------------------------------


def _blame(
    standing: Standing,
    rank: int,
    lost: Mapping[int, Place],
    late: Mapping[int, Place],
    idle: Mapping[int, Place],
) -> Suspect:
    if rank in lost:
        return _blame_lost(standing, rank, lost)
    if rank in late:
        place = name_place(standing, late[rank])
        words = f"the device of rank {rank} has not begun {place}, which those of others are inside of"
        return _suspect([rank], 0.85, [words])
    if rank in idle:
        return _blame_idle(standing, rank, idle[rank])
    words = f"all that rank {rank} waits for is that its message is taken, and others wait for it"
    return _suspect([rank], 0.7, [words])


def _blame_missing(rank: int, *, is_needed: bool) -> Suspect:
    words = f"the dump of rank {rank} is missing, and others wait for it and for nobody else"
    if is_needed:
        return _suspect([rank], 0.6, [words], is_dead=True)
    doubt = "others are known to be stuck: it may as well wait for one of them"
    return _suspect([rank], 0.3, [words, doubt], is_dead=True)


def _blame_lost(standing: Standing, rank: int, lost: Mapping[int, Place]) -> Suspect:
    place = lost[rank]
    alike = [each for each, other in lost.items() if other == place]
    left = name_ranks(standing.leavers(place))
    words = f"rank {rank} has not finished {name_place(standing, place)}, which {left} finished"
    return _suspect([rank], 0.9 if len(alike) == 1 else 0.7, [f"{words}: its device is stuck or gone"])


def _blame_idle(standing: Standing, rank: int, place: Place) -> Suspect:
    there = [each for each, pending in standing.pending.items() if place in pending]
    count = standing.count(rank, place.group)
    last = f"; its last one there was {count}" if count is not None and place.src < 0 else ""
    waits = "waits" if len(there) == 1 else "wait"
    came = (
        f"rank {rank} did not come to {name_place(standing, place)}, where {name_ranks(there)} {waits}{last}"
    )
    if standing.dumps[rank].has_unseen_messages:
        doubt = "its backend does not record messages: it may be stuck, or wait for one"
        return _suspect([rank], 0.5, [came, doubt])
    stuck = "it has no unfinished operation: its host is stuck outside of communication"
    is_sure = place.src >= 0 or count is not None
    return _suspect([rank], 0.95 if is_sure else 0.7, [came, stuck])


def _blame_place(standing: Standing, place: Place) -> Suspect:
    there = sorted(rank for rank, pending in standing.pending.items() if place in pending)
    words = f"{name_ranks(there)} are all in {name_place(standing, place)}, and it does not end"
    if len(there) == 1:
        confidence = 0.85 if len(standing.ranks_at(place)) == 1 else 0.7
        alone = f"rank {there[0]} is alone in {name_place(standing, place)}, and it does not end"
        return _suspect(there, confidence, [alone])
    doubt = "nothing in the dumps tells them apart: the device of one of them, or the network between them"
    return _suspect(there, min(0.5, 1 / len(there)), [words, doubt])


def _blame_circle(standing: Standing, circle: Sequence[Node]) -> Suspect:
    ranks = sorted(node for node in circle if isinstance(node, int))
    places = [name_place(standing, node) for node in circle if isinstance(node, Place)]
    words = f"{name_ranks(ranks)} wait for each other in a circle: {'; '.join(places)}"
    return _suspect(ranks, min(0.5, 1 / max(1, len(ranks))), [words])


def _suspect(ranks: list[int], confidence: float, evidence: list[str], *, is_dead: bool = False) -> Suspect:
    cause: Cause = "death" if is_dead else "hang"
    return Suspect(ranks=ranks, cause=cause, confidence=confidence, evidence=evidence)
