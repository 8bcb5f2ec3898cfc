"""Why a rank's own time grew: what part of it did, and what the host and the code that was running say."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from holdfast.diagnose.profiles import Profile
from holdfast.diagnose.telling import tell_duration
from holdfast.findings import Cause

_PART = 0.4
"""A part with a name that makes up this share of the growth is the reason."""
_ON_CPU = 0.5
"""A rank whose training thread is on a processor for this share of its computing computes on the CPU."""
_HELD = 0.5
"""Of the growth, spent off the processor: the thread was kept from running."""
_MORE_WORK = 1.1
_LEAST_STRENGTH = 0.1


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """Something that points at a cause."""

    cause: Cause
    strength: float
    """Share of the time that it can explain, 0 to 1."""
    evidence: str
    function: str | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a rank is slow."""

    cause: Cause
    certainty: float
    evidence: list[str]
    function: str | None = None


def find_reason(now: Profile, before: Profile, peers: Sequence[Profile], signs: Sequence[Sign]) -> Reason:
    """Return why the own time of a rank grew."""
    grown_s = max(now.sure_s - before.sure_s, 1e-9)
    lines = [sign for sign in signs if sign.function is not None]
    function = lines[0].function if lines else None
    reason = (
        _named_part(now, before, grown_s, signs)
        or _more_work(now, peers)
        or _strongest(signs)
        or _kept_off(now, before, grown_s)
        or _just_computing(now, before)
    )
    if function is not None and reason.function is None:
        reason = msgspec.structs.replace(
            reason, function=function, evidence=[*reason.evidence, lines[0].evidence]
        )
    return reason


def _named_part(now: Profile, before: Profile, grown_s: float, signs: Sequence[Sign]) -> Reason | None:
    parts: list[tuple[Cause, float, float, str]] = [
        ("data_loading", now.data_s, before.data_s, "the data loader"),
        ("garbage_collection", now.gc_s, before.gc_s, "garbage collections"),
        ("storage", now.save_s, before.save_s, "saving"),
    ]
    cause, after_s, before_s, words = max(parts, key=lambda part: part[1] - part[2])
    if after_s - before_s < _PART * grown_s:
        return None
    said = [f"{words} takes {tell_duration(after_s)} of a step, {tell_duration(before_s)} before"]
    if cause == "data_loading":
        reading = [sign for sign in signs if sign.cause == "storage"]
        if reading:
            cause = "storage"
            said += [sign.evidence for sign in reading]
    share = min(1.0, (after_s - before_s) / grown_s)
    return Reason(cause=cause, certainty=0.7 + 0.3 * share, evidence=said)


def _more_work(now: Profile, peers: Sequence[Profile]) -> Reason | None:
    known = [peer.work for peer in peers if peer.work > 0]
    if not known or now.work <= 0 or now.is_planned:
        return None
    usual = statistics.median(known)
    if now.work < _MORE_WORK * usual:
        return None
    # Its time per element must be as theirs, or more work is not why it is slow.
    theirs = statistics.median(peer.compute_s / peer.work for peer in peers if peer.work > 0)
    if now.compute_s / now.work > 1.15 * theirs:
        return None
    said = f"its batches have {now.work:.0f} elements per step, those of the others {usual:.0f}"
    return Reason(cause="input_imbalance", certainty=0.95, evidence=[said])


def _strongest(signs: Sequence[Sign]) -> Reason | None:
    """Return what explains most: something about the host, or a line of code whose kind is known."""
    telling = [sign for sign in signs if sign.cause != "unknown" and sign.strength >= _LEAST_STRENGTH]
    if not telling:
        return None
    strongest = max(telling, key=lambda sign: sign.strength)
    said = [sign.evidence for sign in telling if sign.cause == strongest.cause]
    certainty = min(1.0, 0.75 + strongest.strength)
    return Reason(cause=strongest.cause, certainty=certainty, evidence=said, function=strongest.function)


def _kept_off(now: Profile, before: Profile, grown_s: float) -> Reason | None:
    """Return contention if a rank that computes on the CPU did not get to run."""
    if before.compute_s <= 0 or before.cpu_s < _ON_CPU * before.compute_s:
        return None
    off_s = (now.own_s - now.cpu_s) - (before.own_s - before.cpu_s)
    if off_s < _HELD * grown_s:
        return None
    said = (
        f"its training thread ran for {tell_duration(now.cpu_s)} of {tell_duration(now.own_s)} of its own, "
        f"before for {tell_duration(before.cpu_s)} of {tell_duration(before.own_s)}: it was kept from running"
    )
    return Reason(cause="cpu_contention", certainty=0.9, evidence=[said])


def _just_computing(now: Profile, before: Profile) -> Reason:
    after, usual = tell_duration(now.compute_s), tell_duration(before.compute_s)
    said = f"computing takes {after} of a step, {usual} before, for the same work"
    return Reason(cause="compute", certainty=0.85, evidence=[said])
