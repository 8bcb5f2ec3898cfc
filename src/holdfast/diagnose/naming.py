"""Who slowed the job down, and by what: from what every rank did with its time, before and since.

In a job whose ranks wait for each other the guilty one is the one whose *own* time grew; the others' waiting
grew instead, and they are victims. If nobody's own time grew, the time is lost between them: the network.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.diagnose.causes import Reason, Sign, find_reason
from holdfast.diagnose.groups import SlowGroup
from holdfast.diagnose.layout import Layout
from holdfast.diagnose.links import SlowLink
from holdfast.diagnose.profiles import Profile, share_of
from holdfast.diagnose.telling import tell_duration
from holdfast.findings import Suspect

GUILTY_SHARE = 0.5
"""A rank whose own time grew by this share of what a step lost is to blame for it."""
NEAR_WORST = 0.7
"""Of what the worst rank lost."""
HELD_SHARE = 0.1
"""Of the time that a process is kept from running, from which on it may hold up the communication of all."""
_MOST_PEERS = 200
MOST_OF_IT = 0.5
"""Of what the job loses, a mildly slow link has to lose so much."""
LEAST_SHARE = 0.04
"""What is less than this share of a step is not told from noise."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about a slowdown when somebody has to be named."""

    now: Mapping[int, Profile]
    healthy: Mapping[int, Profile] = {}
    """Empty where the job was slow from the start on."""
    signs: Mapping[int, Sequence[Sign]] = {}
    """What the hosts, and the lines of code that were seen, tell about each rank."""
    links: Sequence[SlowLink] = ()
    mild_links: Sequence[SlowLink] = ()
    """Those that are slow if no rank is late: told where nobody's own time grew."""
    groups: Sequence[SlowGroup] = ()
    layout: Layout | None = None
    """None: all ranks do the same."""
    hosts: Mapping[int, str] = {}


class _Peers:
    """Those who do the same as a rank; sorted once for each role, since there may be thousands of ranks."""

    def __init__(self, evidence: Evidence) -> None:
        roles = evidence.layout.roles if evidence.layout is not None else {}
        everybody = sorted(evidence.now.values(), key=lambda each: each.own_s)
        by_role: dict[int, list[Profile]] = {}
        for profile in everybody:
            by_role.setdefault(roles.get(profile.rank, -1), []).append(profile)
        self._among: dict[int, tuple[list[Profile], int]] = {}
        """For each rank, those it is among, by their own time, and its place there."""
        for same in by_role.values():
            # Stages of a pipeline are not alike: who is left alone in one has nobody to compare with.
            among = same if len(same) > 1 or same[0].is_planned else everybody
            members = {profile.rank for profile in same}
            self._among |= {each.rank: (among, at) for at, each in enumerate(among) if each.rank in members}

    def of(self, rank: int) -> list[Profile]:
        """Return the profiles of a rank's peers, of all others where it has none; some, of very many."""
        among, _ = self._among[rank]
        return [each for each in among[:: max(1, len(among) // _MOST_PEERS)] if each.rank != rank]

    def typical(self, rank: int) -> Profile | None:
        """Return a profile that stands for the peers: that of the median own time."""
        among, place = self._among[rank]
        if len(among) < 2:
            return None
        middle = (len(among) - 2) // 2
        return among[middle if middle < place else middle + 1]


class _Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer a rank's step takes."""

    rank: int
    own_s: float
    wait_s: float
    error_s: float


def name_suspects(evidence: Evidence) -> list[Suspect]:
    """Return who is to blame, the worst first; none if what was seen does not tell."""
    peers = _Peers(evidence)
    growths = _grow(evidence, peers)
    if not growths:
        return []
    lost_s = _lost(evidence, growths)
    guilty = [each for each in growths if _is_guilty(each, lost_s, evidence.now[each.rank].duration_s)]
    if not _is_chain(evidence):
        # Ranks wait for each other all at once: who lost less than the worst holds up nobody.
        worst_s = max((each.own_s for each in guilty), default=0.0)
        guilty = [each for each in guilty if each.own_s >= NEAR_WORST * worst_s]
    if guilty and not _is_of_network(guilty, evidence):
        suspects = _blame(guilty, lost_s, evidence, peers)
        return _blame_held(lost_s, evidence) if _is_mistaken(suspects, lost_s, evidence) else suspects
    return _blame_network(lost_s, evidence, is_nobody_late=not guilty)


def _is_chain(evidence: Evidence) -> bool:
    """Say whether ranks pass their work on to each other, so that what each of them loses adds up."""
    return evidence.layout is not None and len(set(evidence.layout.roles.values())) > 1


def _is_of_network(guilty: Sequence[_Growth], evidence: Evidence) -> bool:
    """Say whether a slow link explains more than any rank's own time does, which may have been disturbed."""
    link_s = max((link.lost_share for link in evidence.links), default=0.0) * _duration(evidence)
    return link_s > max(each.own_s for each in guilty)


def _grow(evidence: Evidence, peers: _Peers) -> list[_Growth]:
    growths = []
    for rank, now in sorted(evidence.now.items()):
        before = evidence.healthy.get(rank) or peers.typical(rank)
        if before is None:
            continue
        growths.append(
            _Growth(
                rank=rank,
                own_s=now.sure_s - before.sure_s * share_of(now, before),
                wait_s=now.wait_s - before.wait_s,
                error_s=(now.error_s**2 + before.error_s**2) ** 0.5,
            )
        )
    return growths


def _lost(evidence: Evidence, growths: Sequence[_Growth]) -> float:
    """Return how much longer a step takes: for all alike, since they wait for each other."""
    if evidence.healthy:
        return statistics.median(each.own_s + each.wait_s for each in growths)
    return max(each.own_s for each in growths)


def _is_guilty(growth: _Growth, lost_s: float, duration_s: float) -> bool:
    is_much = growth.own_s >= max(GUILTY_SHARE * lost_s, LEAST_SHARE * duration_s)
    return is_much and growth.own_s > 2 * growth.error_s


# --- a rank -----------------------------------------------------------------------------------


def _blame(guilty: Sequence[_Growth], lost_s: float, evidence: Evidence, peers: _Peers) -> list[Suspect]:
    reasons = {each.rank: _reason(each, evidence, peers) for each in guilty}
    victims = sorted(set(evidence.now) - set(reasons))
    suspects = []
    for cause in dict.fromkeys(reason.cause for reason in reasons.values()):
        mine = [each for each in guilty if reasons[each.rank].cause == cause]
        worst = max(mine, key=lambda each: each.own_s)
        suspects.append(
            Suspect(
                kind="rank",
                ranks=[each.rank for each in mine],
                hosts=_hosts([each.rank for each in mine], evidence),
                function=reasons[worst.rank].function,
                cause=cause,
                slowdown=_slowdown(worst, evidence),
                confidence=_confidence(worst, lost_s, reasons[worst.rank]),
                victims=victims,
                evidence=[_say_growth(worst, evidence), *reasons[worst.rank].evidence],
            )
        )
    return sorted(suspects, key=lambda suspect: -(suspect.slowdown or 0.0))


def _reason(growth: _Growth, evidence: Evidence, peers: _Peers) -> Reason:
    rank = growth.rank
    now = evidence.now[rank]
    before = evidence.healthy.get(rank) or peers.typical(rank)
    assert before is not None
    return find_reason(now, before, peers.of(rank), evidence.signs.get(rank, ()))


def _slowdown(growth: _Growth, evidence: Evidence) -> float:
    """Return the step time over the one without what is to blame."""
    duration_s = evidence.now[growth.rank].duration_s
    return round(duration_s / max(duration_s - growth.own_s, 0.05 * duration_s), 3)


def _confidence(growth: _Growth, lost_s: float, reason: Reason) -> float:
    """Return how sure it is: by what share of the loss is explained, by how far above noise, by its cause."""
    share = min(1.0, growth.own_s / lost_s) if lost_s > 0 else 1.0
    sigmas = growth.own_s / growth.error_s if growth.error_s > 0 else 10.0
    return round(min(0.99, (0.5 + 0.5 * share) * min(1.0, 0.6 + sigmas / 10) * reason.certainty), 3)


def _say_growth(growth: _Growth, evidence: Evidence) -> str:
    now = evidence.now[growth.rank]
    others = [profile.wait_s for rank, profile in evidence.now.items() if rank != growth.rank]
    against = "than before" if evidence.healthy.get(growth.rank) else "than the other ranks"
    own, more = tell_duration(now.own_s), tell_duration(growth.own_s)
    text = f"rank {growth.rank} needs {own} of its own per step, {more} more {against}"
    if others:
        theirs = tell_duration(statistics.median(others))
        text += f"; it waits {tell_duration(now.wait_s)} for others, they wait {theirs}"
    return text


# --- the network ------------------------------------------------------------------------------


def _blame_network(lost_s: float, evidence: Evidence, *, is_nobody_late: bool) -> list[Suspect]:
    found = [_blame_link(each, lost_s, evidence, confidence=0.9) for each in evidence.links]
    found = found or _blame_held(lost_s, evidence)
    if not found and is_nobody_late:
        least = MOST_OF_IT * lost_s / _duration(evidence)
        mild = [each for each in evidence.mild_links if each.lost_share >= least]
        found = [_blame_link(each, lost_s, evidence, confidence=0.75) for each in mild]
    for group in evidence.groups if not found else ():
        found.append(
            Suspect(
                kind="rank",
                ranks=group.ranks,
                hosts=_hosts(group.ranks, evidence),
                cause="link",
                slowdown=_network_slowdown(lost_s, evidence),
                confidence=0.6,
                victims=sorted(set(evidence.now) - set(group.ranks)),
                evidence=[_say_wait(evidence), group.evidence],
            )
        )
    if found or lost_s <= LEAST_SHARE * _duration(evidence):
        return found
    return [
        Suspect(
            kind="rank",
            ranks=sorted(evidence.now),
            hosts=_hosts(sorted(evidence.now), evidence),
            cause="link",
            slowdown=_network_slowdown(lost_s, evidence),
            confidence=0.4,
            evidence=[_say_wait(evidence), "which link it is cannot be told from this; probes could"],
        )
    ]


def _blame_link(link: SlowLink, lost_s: float, evidence: Evidence, *, confidence: float) -> Suspect:
    return Suspect(
        kind="link" if link.link is not None else "rank",
        ranks=list(link.ranks),
        hosts=_hosts(link.ranks, evidence),
        link=link.link,
        cause="link",
        slowdown=_network_slowdown(lost_s, evidence),
        confidence=confidence,
        victims=sorted(set(evidence.now) - set(link.ranks)),
        evidence=[_say_wait(evidence), link.evidence],
    )


def _blame_held(lost_s: float, evidence: Evidence) -> list[Suspect]:
    """Return ranks whose processes are kept from running while others' are not.

    What is held up may be the threads that communicate: then everybody waits, and nobody's own time grew.
    """
    held = _held(evidence)
    if not held:
        return []
    return [
        Suspect(
            kind="rank",
            ranks=sorted(held),
            hosts=_hosts(sorted(held), evidence),
            cause="cpu_contention",
            slowdown=_network_slowdown(lost_s, evidence),
            confidence=0.75,
            victims=sorted(set(evidence.now) - set(held)),
            evidence=[_say_wait(evidence), *(held[rank].evidence for rank in sorted(held))],
        )
    ]


def _held(evidence: Evidence) -> dict[int, Sign]:
    """Return the signs of ranks that are kept from running, and most others are not."""
    signs = {
        rank: max(found, key=lambda sign: sign.strength)
        for rank, every in evidence.signs.items()
        if (found := [sign for sign in every if sign.cause == "cpu_contention"])
    }
    most = max((sign.strength for sign in signs.values()), default=0.0)
    worst = {rank: sign for rank, sign in signs.items() if sign.strength >= NEAR_WORST * most}
    return worst if most >= HELD_SHARE and 2 * len(worst) <= len(evidence.now) else {}


def _is_mistaken(suspects: Sequence[Suspect], lost_s: float, evidence: Evidence) -> bool:
    """Say whether others are kept from running than those who are blamed for computing longer.

    Whoever shares a processor with a core that is fought for computes longer, too. But who is kept from
    running for less than a good part of what is lost has not lost it.
    """
    blamed = {rank for suspect in suspects for rank in suspect.ranks}
    is_of_processor = all(suspect.cause in ("cpu_contention", "compute") for suspect in suspects)
    held = _held(evidence)
    held_s = max((sign.strength for sign in held.values()), default=0.0) * _duration(evidence)
    return is_of_processor and bool(held) and held_s >= GUILTY_SHARE * lost_s and not blamed & set(held)


def _network_slowdown(lost_s: float, evidence: Evidence) -> float:
    duration_s = _duration(evidence)
    return round(duration_s / max(duration_s - lost_s, 0.05 * duration_s), 3)


def _duration(evidence: Evidence) -> float:
    return statistics.median(profile.duration_s for profile in evidence.now.values())


def _say_wait(evidence: Evidence) -> str:
    now = tell_duration(statistics.median(profile.wait_s for profile in evidence.now.values()))
    if not evidence.healthy:
        return f"nobody's own time stands out; communication takes {now} of a step"
    before = tell_duration(statistics.median(profile.wait_s for profile in evidence.healthy.values()))
    return f"nobody's own time grew; communication takes {now} of a step, {before} before"


def _hosts(ranks: Sequence[int], evidence: Evidence) -> list[str]:
    return sorted({evidence.hosts[rank] for rank in ranks if rank in evidence.hosts})
