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

from holdfast.telemetry import Channel

_ALIKE = re.compile(
    r"(^|[_\W])(d?dp|[eh]?[fh]sdp|replicate|shard|[ce]?tp|tensor|sp|cp|context|(data|sequence)_parallel)"
    r"($|[_\W\d])",
    re.IGNORECASE,
)
"""Groups within which all do the same: on other data, or on other parts of the same layers."""
_STAGE = re.compile(r"(^|[_\W])(pp|pipe|pipeline|stages?)($|[_\W\d])", re.IGNORECASE)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The roles of all ranks."""

    kind: Literal["named", "chain", "unknown"]
    roles: dict[int, int]
    """Ranks of the same role do the same: on other data, or on other parts of the same layers."""

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
    """Number the stages by pipeline groups; else ranks that share a group of those who are alike have one."""
    pipelines = _groups(channels, _STAGE, but=_ALIKE)
    stages = {rank: stage for members in pipelines for stage, rank in enumerate(members)}
    if pipelines and set(ranks) <= set(stages):
        return {rank: stages[rank] for rank in ranks}
    alike = _groups(channels, _ALIKE, but=_STAGE)
    if not alike or not set(ranks) <= {rank for members in alike for rank in members}:
        return None
    # Without a pipeline there are no stages: what keeps groups apart is only that not all names are known.
    has_pipeline = pipelines or any(
        each.kind in ("to", "from") for mine in channels.values() for each in mine
    )
    return _join(alike, ranks) if has_pipeline else dict.fromkeys(ranks, 0)


def _groups(
    channels: Mapping[int, Sequence[Channel]], pattern: re.Pattern[str], *, but: re.Pattern[str]
) -> list[tuple[int, ...]]:
    """Return the groups of a kind of name; one that spans both kinds tells nothing, nor does one of one."""
    found = {
        tuple(channel.ranks)
        for mine in channels.values()
        for channel in mine
        if channel.kind == "group" and len(channel.ranks) > 1
        if pattern.search(channel.name) and not but.search(channel.name)
    }
    return sorted(found)


def _join(groups: Sequence[Sequence[int]], ranks: Sequence[int]) -> dict[int, int]:
    """Give all ranks that groups join, directly or by others, one role; roles count from the lowest rank."""
    near: dict[int, set[int]] = {}
    for members in groups:
        for rank in members:
            near.setdefault(rank, set()).add(members[0])
            near.setdefault(members[0], set()).add(rank)
    roles: dict[int, int] = {}
    count = 0
    for rank in ranks:
        ahead = [rank] if rank not in roles else []
        count += len(ahead)
        while ahead:
            here = ahead.pop()
            if here not in roles:
                roles[here] = count - 1
                ahead += near[here]
    return {rank: roles[rank] for rank in ranks}


def _roles_by_chain(channels: Mapping[int, Sequence[Channel]], ranks: Sequence[int]) -> dict[int, int] | None:
    """Number the ranks of every chain from its lower end."""
    near: dict[int, set[int]] = {rank: set() for rank in ranks}
    for rank, mine in channels.items():
        for channel in mine:
            for peer in channel.ranks if channel.kind in ("to", "from") else ():
                if peer in near and peer != rank:
                    near[rank].add(peer)
                    near[peer].add(rank)
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
