"""Ranks and stages that have more to do than others from the start on: nothing changed, nothing alarmed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from holdfast.diagnose.causes import find_reason
from holdfast.diagnose.layout import Layout
from holdfast.diagnose.profiles import Profile
from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Suspect

COSTLY = 0.15
"""Share of a step that it has to cost to be worth a word."""
_SIGMAS = 6.0


def find_imbalance(profiles: Mapping[int, Profile], layout: Layout) -> list[Suspect]:
    """Return who makes the others wait in every step of a job that never was faster."""
    found = [
        suspect
        for rank, mine in sorted(profiles.items())
        if (suspect := _against_peers(rank, mine, profiles, layout)) is not None
    ]
    return found or _against_stages(profiles, layout)


def _against_peers(
    rank: int, mine: Profile, profiles: Mapping[int, Profile], layout: Layout
) -> Suspect | None:
    peers = [profiles[other] for other in layout.peers(rank) if other in profiles]
    if not peers:
        return None
    usual = sorted(peers, key=lambda each: each.own_s)[len(peers) // 2]
    more_s = mine.own_s - usual.own_s
    if more_s < COSTLY * mine.duration_s or more_s < _SIGMAS * (mine.error_s + usual.error_s):
        return None
    reason = find_reason(mine, usual, peers, ())
    return Suspect(
        ranks=[rank],
        function=reason.function,
        cause=reason.cause,
        slowdown=round(mine.duration_s / (mine.duration_s - more_s), 3),
        confidence=0.8,
        victims=sorted(set(profiles) - {rank}),
        evidence=[
            f"rank {rank} needs {1000 * mine.own_s:.3g} ms of its own per step from the start on, "
            f"{name_ranks(each.rank for each in peers)} {1000 * usual.own_s:.3g} ms",
            *reason.evidence,
        ],
    )


def _against_stages(profiles: Mapping[int, Profile], layout: Layout) -> list[Suspect]:
    stages: dict[int, list[Profile]] = {}
    for rank, profile in profiles.items():
        stages.setdefault(layout.roles.get(rank, 0), []).append(profile)
    if len(stages) < 2:
        return []
    own_s = {role: statistics.median(each.own_s for each in mine) for role, mine in stages.items()}
    worst = max(own_s, key=lambda role: own_s[role])
    usual_s = statistics.median(seconds for role, seconds in own_s.items() if role != worst)
    duration_s = statistics.median(profile.duration_s for profile in profiles.values())
    more_s = own_s[worst] - usual_s
    noise_s = max(each.error_s for each in stages[worst])
    if more_s < COSTLY * duration_s or more_s < _SIGMAS * noise_s:
        return []
    ranks = sorted(each.rank for each in stages[worst])
    return [
        Suspect(
            ranks=ranks,
            cause="stage_imbalance",
            slowdown=round(duration_s / (duration_s - more_s), 3),
            confidence=0.7,
            victims=sorted(set(profiles) - set(ranks)),
            evidence=[
                f"stage {worst} ({name_ranks(ranks)}) needs {1000 * own_s[worst]:.3g} ms of its own "
                f"per step, the other stages {1000 * usual_s:.3g} ms"
            ],
        )
    ]
