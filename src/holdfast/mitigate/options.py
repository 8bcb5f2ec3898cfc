"""What can be done about a condition, and what each way promises."""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.ledger import Level
from holdfast.mitigate.model import Model, best_exchange
from holdfast.mitigate.prices import Deed

LEAST_GAIN = 0.02
"""Of a healthy step: less than this cannot be told from noise afterwards."""
_ANY = 1e-6


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way to go on."""

    level: Level
    deed: Deed
    arrangement: Arrangement
    gain: float
    """By how much steps get shorter, in healthy steps."""
    way_back: Deed | None = None
    """What it takes to go back when all is well again; None: it may stay as it is."""
    is_home: bool = False
    """It is how the job was, and as good as anything under the condition."""


class Ways:
    """The options of a job, remembered: the same few conditions are looked at again and again."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[tuple[Condition, Arrangement], list[Option]] = {}

    def of(self, condition: Condition, now: Arrangement) -> list[Option]:
        """Return what can be done about a condition."""
        key = (condition, now)
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = options(self._model, condition, now)
        return self._known[key]


_KEPT = 1000


def options(model: Model, condition: Condition, now: Arrangement) -> list[Option]:
    """Return the ways to go on that promise to be faster than what is done now."""
    before = model.slowdown(condition, now)
    found: list[Option] = []
    for level, deed, arrangement in _ways(model, condition, now):
        if arrangement == now or not model.is_possible(arrangement):
            continue
        gain = before - model.slowdown(condition, arrangement)
        # The way back is different: it is known to help, however little, and health may last for weeks.
        if gain >= (_ANY if level == "undo" else LEAST_GAIN):
            back = None if level == "undo" else _way_back(model, arrangement)
            is_home = not found and level == "undo"
            found.append(
                Option(
                    level=level, deed=deed, arrangement=arrangement, gain=gain, way_back=back, is_home=is_home
                )
            )
    return found


def _way_back(model: Model, arrangement: Arrangement) -> Deed | None:
    """Return what it would take to undo an arrangement that would slow a healthy job down."""
    back = next(iter(options(model, Condition(), arrangement)), None)
    return back.deed if back is not None else None


def _ways(model: Model, condition: Condition, now: Arrangement) -> list[tuple[Level, Deed, Arrangement]]:
    if condition.is_healthy:
        # A meeting to share out the work evenly again is also the time to take one's old place.
        original = Arrangement(without=now.without)
        return [("undo", "exchange" if now.holders else "replan", original)]
    shared = _shared(model, condition, now)
    exchanged = best_exchange(model, condition, shared)
    others = {rank for rank, _ in now.reckoned} - {rank for rank, _ in condition.speeds}
    # Who is nearly well again has as much to do as the others: then all is as it was.
    is_back = not shared.reckoned and not shared.holders
    ways: list[tuple[Level, Deed, Arrangement]] = [("undo" if is_back else "S2", "replan", shared)]
    if exchanged.holders != now.holders:
        ways.append(("S3", "exchange", exchanged))
    if others and not is_back:  # Arranged around somebody who is not to blame any more.
        ways.append(("undo", "replan", msgspec.structs.replace(now, reckoned=())))
    fewer = Arrangement(without=tuple(sorted({*now.without, *_machines_of(model, worst(condition))})))
    if _may_leave(model, fewer, now):
        ways.append(("S4", "restart", fewer))
    return ways


def _may_leave(model: Model, fewer: Arrangement, now: Arrangement) -> bool:
    """Say whether some can be done without for good: nobody can tell when who has left is well again."""
    if any(model.shape.node(rank) == model.shape.host for rank in fewer.without):
        return False
    # Only whom a spare replaces.
    return model.slowdown(Condition(), fewer) <= model.slowdown(Condition(), Arrangement(without=now.without))


def _shared(model: Model, condition: Condition, now: Arrangement) -> Arrangement:
    """Return the same with the work shared out by speed, or evenly where that is about as fast."""
    even = msgspec.structs.replace(now, reckoned=())
    by_speed = msgspec.structs.replace(now, reckoned=condition.speeds)
    gain = model.slowdown(condition, even) - model.slowdown(condition, by_speed)
    return by_speed if gain >= LEAST_GAIN else even


def _machines_of(model: Model, ranks: list[int]) -> set[int]:
    """Return all who run on the machines of some: it is machines that are sent away."""
    nodes = {model.shape.node(rank) for rank in ranks}
    return {rank for rank in range(model.shape.places) if model.shape.node(rank) in nodes}


def worst(condition: Condition) -> list[int]:
    """Return the ranks to do without: the slow ones, and of links the fewest ends that are in all."""
    found = [rank for rank, _ in condition.speeds]
    links = [link for link in condition.links if not {link.first, link.second} & set(found)]
    while links:
        ends = Counter(end for link in links for end in (link.first, link.second))
        # The higher rank of two equals: rank 0's machine often has more to do with the job than to train.
        end = max(ends, key=lambda rank: (ends[rank], rank))
        found.append(end)
        links = [link for link in links if end not in (link.first, link.second)]
    return sorted(found)
