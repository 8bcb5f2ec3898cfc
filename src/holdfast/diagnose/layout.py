"""Who does the same as whom in a job: from the names of its groups, else from who calls whom.

Names come from DeviceMesh dimensions, from group descriptions and from Megatron's groups. Where nothing has a
name, ranks that pass messages along a chain are stages of a pipeline; and where there is not even that, all
ranks do the same. ``kind`` says which of these it was; ``unknown`` is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.values import Channel

_DATA = re.compile(r"(^|[_\W])(d?dp|fsdp|hsdp|data_parallel|replicate|shard)($|[_\W\d])", re.I)
_STAGE = re.compile(r"(^|[_\W])(pp|pipe|pipeline|pipeline_model_parallel|stage)($|[_\W\d])", re.I)
_TENSOR = re.compile(r"(^|[_\W])(tp|tensor|tensor_model_parallel|sp|cp|ep)($|[_\W\d])", re.I)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The roles of all ranks."""

    kind: Literal["named", "chain", "unknown"]
    roles: dict[int, int]
    """Ranks of the same role do the same work on other data."""

    def peers(self, rank: int) -> list[int]:
        """Return the other ranks of a rank's role."""
        role = self.roles.get(rank)
        return [other for other, theirs in sorted(self.roles.items()) if theirs == role and other != rank]


def find_layout(channels: Mapping[int, Sequence[Channel]]) -> Layout:
    """Return the layout of a job whose ranks use these channels."""
    ranks = sorted(channels)
    named = _roles_by_name(channels, ranks)
    if named is not None:
        return Layout(kind="named", roles=named)
    chain = _roles_by_chain(channels, ranks)
    if chain is not None:
        return Layout(kind="chain", roles=chain)
    return Layout(kind="unknown", roles=dict.fromkeys(ranks, 0))


def _roles_by_name(channels: Mapping[int, Sequence[Channel]], ranks: Sequence[int]) -> dict[int, int] | None:
    """Ranks that share a data-parallel group have one role; else pipeline groups number the stages."""
    sets = _groups(channels, _DATA)
    if sets:
        found: dict[int, int] = {}
        for role, members in enumerate(sorted(sets)):
            found |= {rank: role for rank in members if rank not in found}
        return found if set(ranks) <= set(found) else None
    stages = _groups(channels, _STAGE)
    if stages:
        return {rank: members.index(rank) for members in stages for rank in members if rank in channels}
    return None


def _groups(channels: Mapping[int, Sequence[Channel]], pattern: re.Pattern[str]) -> set[tuple[int, ...]]:
    return {
        tuple(channel.ranks)
        for mine in channels.values()
        for channel in mine
        if channel.kind == "group" and pattern.search(channel.name) and not _TENSOR.search(channel.name)
    }


def _roles_by_chain(channels: Mapping[int, Sequence[Channel]], ranks: Sequence[int]) -> dict[int, int] | None:
    """Number the ranks of every chain from its lower end."""
    near: dict[int, set[int]] = {rank: set() for rank in ranks}
    for rank, mine in channels.items():
        for channel in mine:
            if channel.kind in ("to", "from") and channel.ranks[0] in near:
                near[rank].add(channel.ranks[0])
                near[channel.ranks[0]].add(rank)
    if not any(near.values()) or any(len(each) > 2 for each in near.values()):
        return None
    roles: dict[int, int] = {}
    for start in (rank for rank in ranks if len(near[rank]) == 1):
        if start in roles:
            continue
        here: int | None = start
        before: int | None = None
        stage = 0
        while here is not None and here not in roles:
            roles[here] = stage
            following = [each for each in near[here] if each != before]
            before, here = here, following[0] if following else None
            stage += 1
    return roles if set(roles) == set(ranks) else None
