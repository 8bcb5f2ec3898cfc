"""How channels travel: groups as runs of ranks, since the group of all may have ten thousand members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.telemetry import Channel

_Run = tuple[int, int, int]
"""First rank, how many, and from one to the next."""
_MOST_RANKS = 1_000_000
"""Of a group; more is no group but an attack."""
_MOST_GROUPS = 100_000


class PackedChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel as it travels."""

    number: int
    kind: Literal["group", "to", "from", "rest"]
    runs: tuple[_Run, ...]
    name: str = ""


def pack(channels: Mapping[int, Sequence[Channel]]) -> dict[int, list[PackedChannel]]:
    """Return the channels of each rank as they are to be sent."""
    return {
        rank: [
            PackedChannel(number=each.number, kind=each.kind, runs=_runs(each.ranks), name=each.name)
            for each in mine
        ]
        for rank, mine in channels.items()
    }


class Unpacker:
    """Makes channels of what has come; all that name the same group share one list of it."""

    def __init__(self) -> None:
        self._groups: dict[tuple[_Run, ...], list[int]] = {}

    def unpack(self, packed: Mapping[int, Sequence[PackedChannel]]) -> dict[int, list[Channel]]:
        """Return the channels of each rank; raise ``ValueError`` for a group that cannot be."""
        return {rank: [self._channel(each) for each in mine] for rank, mine in packed.items()}

    def _channel(self, packed: PackedChannel) -> Channel:
        return Channel(
            number=packed.number, kind=packed.kind, ranks=self._group(packed.runs), name=packed.name
        )

    def _group(self, runs: tuple[_Run, ...]) -> list[int]:
        known = self._groups.get(runs)
        if known is not None:
            return known
        total = sum(count for _, count, _ in runs)
        if total > _MOST_RANKS or any(count < 1 for _, count, _ in runs):
            raise ValueError(f"a group of {total} ranks, expected at most {_MOST_RANKS}")
        if len(self._groups) >= _MOST_GROUPS:
            self._groups.clear()
        ranks = [first + step * each for first, count, step in runs for each in range(count)]
        return self._groups.setdefault(runs, ranks)


def _runs(ranks: Sequence[int]) -> tuple[_Run, ...]:
    """Return ranks as runs of equal distance, in their order."""
    if len(ranks) > 1:  # Most groups are one run, which is found a hundred times as fast this way.
        first, step = ranks[0], ranks[1] - ranks[0]
        if step and ranks == list(range(first, first + step * len(ranks), step)):
            return ((first, len(ranks), step),)
    found: list[_Run] = []
    for rank in ranks:
        if found:
            first, count, step = found[-1]
            step = rank - first if count == 1 else step
            if rank == first + step * count:
                found[-1] = (first, count + 1, step)
                continue
        found.append((rank, 1, 0))
    return tuple(found)
