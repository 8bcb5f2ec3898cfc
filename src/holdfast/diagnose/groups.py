"""Which group communicates slowly: how long its calls take whoever comes last, against groups like it.

In a group the last to come waits for nobody: what it spends in the call is the transfer itself. Groups that
move the same volume are compared with each other (FALCON: above 1.1 times their median is suspicious), and
with what they took before.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.diagnose.telling import tell_duration
from holdfast.diagnose.wording import name_ranks
from holdfast.telemetry import Channel, Step

SUSPICIOUS = 1.1
_LEAST_MEMBERS = 2


class GroupTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a group communicates in a step."""

    ranks: tuple[int, ...]
    name: str
    moved_bytes: float
    transfer_s: float
    """Of the member that waited least."""


class SlowGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that takes longer than it should."""

    ranks: list[int]
    slowdown: float
    evidence: str


def group_times(
    steps: Mapping[int, Sequence[Step]], channels: Mapping[int, Mapping[int, Channel]]
) -> list[GroupTime]:
    """Return the time of every group all of whose members are known."""
    waits: dict[tuple[tuple[int, ...], str], dict[int, tuple[float, float]]] = {}
    for rank, mine in steps.items():
        for number, channel in channels.get(rank, {}).items():
            if channel.kind == "group" and len(channel.ranks) >= _LEAST_MEMBERS and mine:
                uses = [use for step in mine for use in step.channels if use.channel == number]
                wait_s = sum(use.wait_s for use in uses) / len(mine)
                moved = sum(use.moved_bytes for use in uses) / len(mine)
                waits.setdefault((tuple(channel.ranks), channel.name), {})[rank] = (wait_s, moved)
    return [
        GroupTime(
            ranks=ranks,
            name=name,
            moved_bytes=max(moved for _, moved in members.values()),
            transfer_s=min(wait_s for wait_s, _ in members.values()),
        )
        for (ranks, name), members in sorted(waits.items())
        if set(members) == set(ranks)
    ]


def find_slow_groups(
    now: Sequence[GroupTime], healthy: Sequence[GroupTime], *, step_s: float
) -> list[SlowGroup]:
    """Return groups that are slow against their like or against before, and cost a step something."""
    before = {(group.ranks, group.name): group.transfer_s for group in healthy}
    found = []
    for group in now:
        alike = [other.transfer_s for other in now if other is not group and _is_alike(other, group)]
        usual_s = before.get((group.ranks, group.name))
        if usual_s is None and alike:
            usual_s = statistics.median(alike)
        if usual_s is None or group.transfer_s < SUSPICIOUS * usual_s:
            continue
        if alike and group.transfer_s < SUSPICIOUS * statistics.median(alike):
            continue  # All of its like are as slow: it is not this group.
        if group.transfer_s - usual_s < 0.05 * step_s:
            continue
        found.append(_slow(group, usual_s))
    return sorted(found, key=lambda each: -each.slowdown)


def _is_alike(one: GroupTime, other: GroupTime) -> bool:
    return len(one.ranks) == len(other.ranks) and abs(one.moved_bytes - other.moved_bytes) <= (
        0.01 * max(one.moved_bytes, other.moved_bytes)
    )


def _slow(group: GroupTime, usual_s: float) -> SlowGroup:
    ratio = group.transfer_s / max(usual_s, 1e-9)
    name = f"group {group.name}" if group.name else "the group"
    said = (
        f"{name} of {name_ranks(group.ranks)} communicates for {tell_duration(group.transfer_s)} of a step "
        f"even where nobody is waited for, {tell_duration(usual_s)} is usual"
    )
    return SlowGroup(ranks=list(group.ranks), slowdown=ratio, evidence=said)
