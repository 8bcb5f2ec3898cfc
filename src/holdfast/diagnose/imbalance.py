"""Ranks and stages that have more to do than others from the start on: nothing changed, nothing alarmed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.diagnose.causes import Reason, find_reason
from holdfast.diagnose.layout import Layout
from holdfast.diagnose.profiles import Profile, share_of
from holdfast.diagnose.telling import tell_duration
from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Suspect

COSTLY = 0.15
"""Share of a step that it has to cost to be worth a word."""
_SIGMAS = 6.0
_MOST_PEERS = 64
"""That a rank is held against; more would cost time in large jobs, and tell no more."""


def find_lasting_imbalance(
    before: Mapping[int, Profile], after: Mapping[int, Profile], layout: Layout
) -> list[Suspect]:
    """Return those of the later time who were there in the earlier one too; what is new is a fault."""
    known = {(suspect.cause, *suspect.ranks) for suspect in find_imbalance(before, layout)}
    return [each for each in find_imbalance(after, layout) if (each.cause, *each.ranks) in known]


def find_imbalance(profiles: Mapping[int, Profile], layout: Layout) -> list[Suspect]:
    """Return who makes the others wait in every step of a job that never was faster."""
    stages: dict[int | None, list[Profile]] = {}
    for rank, profile in sorted(profiles.items()):
        stages.setdefault(layout.roles.get(rank), []).append(profile)
    heavy = [each for mine in stages.values() for each in _heavier(mine)]
    return _blame(heavy, profiles) or _against_stages(stages, profiles)


class _Heavy(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that needs longer than those who do the same."""

    mine: Profile
    usual: Profile
    more_s: float
    reason: Reason


def _heavier(stage: Sequence[Profile]) -> list[_Heavy]:
    ordered = sorted(stage, key=lambda each: each.own_s)
    middle = (len(ordered) - 1) // 2
    usual = ordered[middle]
    near = ordered[max(0, middle - _MOST_PEERS // 2) : middle + _MOST_PEERS // 2]
    found = []
    for mine in ordered[middle + 1 :]:
        more_s = mine.own_s - usual.own_s * share_of(mine, usual)
        if more_s >= COSTLY * mine.duration_s and more_s >= _SIGMAS * (mine.error_s + usual.error_s):
            peers = [each for each in near if each.rank != mine.rank]
            reason = find_reason(mine, usual, peers, ())
            found.append(_Heavy(mine=mine, usual=usual, more_s=more_s, reason=reason))
    return found


def _blame(heavy: Sequence[_Heavy], profiles: Mapping[int, Profile]) -> list[Suspect]:
    victims = sorted(set(profiles) - {each.mine.rank for each in heavy})
    found = []
    for cause in dict.fromkeys(each.reason.cause for each in heavy):
        alike = [each for each in heavy if each.reason.cause == cause]
        worst = max(alike, key=lambda each: each.more_s)
        found.append(
            Suspect(
                ranks=sorted(each.mine.rank for each in alike),
                function=worst.reason.function,
                cause=cause,
                slowdown=_slowdown(worst.mine.duration_s, worst.more_s),
                confidence=0.8,
                victims=victims,
                evidence=[_say(worst), *worst.reason.evidence],
            )
        )
    return sorted(found, key=lambda suspect: -(suspect.slowdown or 0.0))


def _say(heavy: _Heavy) -> str:
    mine, usual = heavy.mine, heavy.usual
    return (
        f"rank {mine.rank} needs {tell_duration(mine.own_s)} of its own per step from the start on, "
        f"rank {usual.rank}, which does the same, {tell_duration(usual.own_s)}"
    )


def _slowdown(duration_s: float, more_s: float) -> float:
    return round(duration_s / max(duration_s - more_s, 0.05 * duration_s), 3)


def _against_stages(
    stages: Mapping[int | None, Sequence[Profile]], profiles: Mapping[int, Profile]
) -> list[Suspect]:
    # Where a plan gave some more to do, stages are compared by what the same work takes them.
    is_planned = bool(profiles) and all(each.is_planned and each.work > 0 for each in profiles.values())
    usual_work = statistics.median(each.work for each in profiles.values()) if is_planned else 0.0
    # Of two the lower: a stage is heavy where all of its ranks need long, not where one of them is slow.
    own_s = {
        role: statistics.median_low(
            each.own_s * (usual_work / each.work if is_planned else 1.0) for each in mine
        )
        for role, mine in stages.items()
        if role is not None
    }
    if len(own_s) < 2:
        return []
    usual_s = statistics.median_low(own_s.values())
    duration_s = statistics.median(profile.duration_s for profile in profiles.values())
    found = []
    for role in sorted(own_s, key=lambda role: -own_s[role]):
        more_s = own_s[role] - usual_s
        noise_s = max(each.error_s for each in stages[role])
        if more_s >= COSTLY * duration_s and more_s >= _SIGMAS * noise_s:
            found.append((role, _slowdown(duration_s, more_s)))
    guilty = {each.rank for role, _ in found for each in stages[role]}
    return [
        Suspect(
            ranks=(ranks := sorted(each.rank for each in stages[role])),
            cause="stage_imbalance",
            slowdown=slowdown,
            confidence=0.7,
            victims=sorted(set(profiles) - guilty),
            evidence=[
                f"stage {role} ({name_ranks(ranks)}) needs {tell_duration(own_s[role])} of its own "
                f"per step, other stages {tell_duration(usual_s)}"
            ],
        )
        for role, slowdown in found
    ]
