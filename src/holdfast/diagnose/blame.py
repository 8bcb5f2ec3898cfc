"""Findings in profiles as suspects: cause, price, and what was seen, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.diagnose.localise import LESS_USE, Finding
from holdfast.diagnose.reduce import Known
from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Cause, Suspect

_SURE, _SUREST = 0.7, 0.99
_WORDS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        "garbage_collection",
        re.compile(r"^Python GC$|\bgc\.py|gc\.collect|function collect\b|_gc_\w*callback"),
    ),
    ("host_memory", re.compile(r"pin_memory|\bcopy_\b|\bclone\b|memcpy|memmove|deepcopy|\bcontiguous\b")),
    (
        "storage",
        re.compile(
            r"(method|function) (p?readv?|readinto\d*|readline|recv(_into|from)?|open|p?writev?|fsync|stat)\b"
            r"|\b(imread|urlopen|loadtxt|savetxt|fromfile|tofile|memmap)\b|serialization\.py"
        ),
    ),
    (
        "data_loading",
        # The last is our own hook around a loader's next batch: whatever is called there loads data.
        re.compile(
            r"dataloader\.py|dataset\w*\.py|__getitem__|collate|sampler\.py|_next_data|fetch\.py"
            r"|pauses\.py\(\d+\): timed_next"
        ),
    ),
)
"""In the function itself and then in its callers; the first that fits."""
_CALLERS = 12


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What was profiled."""

    ranks: Sequence[int]
    span_s: float
    has_device: bool = False
    """Whether compute runs on devices that tell their clocks; else it is the processor's."""


def blame(findings: Sequence[Finding], known: Sequence[Known], window: Window) -> list[Suspect]:
    """Return a suspect for each finding; ``known`` has the functions by row.

    A function that is called from several places is one suspect, with what it costs in all of them.
    """
    found: dict[tuple[str | None, Cause, tuple[int, ...]], Suspect] = {}
    for finding in findings:
        suspect = _suspect(finding, known[finding.row], window)
        key = (suspect.function, suspect.cause, tuple(suspect.ranks))
        found[key] = _join(found[key], suspect, window) if key in found else suspect
    return list(found.values())


def _join(first: Suspect, second: Suspect, window: Window) -> Suspect:
    cost_s = (first.cost_s or 0.0) + (second.cost_s or 0.0)
    return msgspec.structs.replace(
        first, cost_s=cost_s, slowdown=_slowdown(cost_s / window.span_s if window.span_s > 0 else 0.0)
    )


def _slowdown(cost: float) -> float | None:
    return 1 / (1 - cost) if cost < 1 else None


def _suspect(finding: Finding, function: Known, window: Window) -> Suspect:
    ranks = window.ranks
    guilty = set(finding.ranks)
    is_everybody = len(guilty) == len(ranks)
    victims = finding.waiting or [rank for rank in ranks if rank not in guilty]
    return Suspect(
        kind="function",
        ranks=finding.ranks,
        function=function.name,
        cause=cause_of(finding, function, has_device=window.has_device),
        slowdown=_slowdown(finding.cost),
        cost_s=finding.cost * window.span_s,
        confidence=min(_SUREST, _SURE + 0.03 * finding.score),
        victims=[] if is_everybody or finding.what == "uneven" else victims,
        evidence=[_tell(finding), *_tell_stack(function)],
    )


def cause_of(finding: Finding, function: Known, *, has_device: bool = True) -> Cause:
    """Return what a finding says about the cause."""
    if finding.kind == "collective":
        return "link"
    if finding.what == "uneven":
        return "input_imbalance"
    is_idle = finding.use is not None and finding.use < LESS_USE
    if finding.kind == "compute":
        if is_idle:  # A device that runs slowly, or a thread that is kept from running.
            return "compute" if has_device else "cpu_contention"
        return "compute" if finding.use is None else "input_imbalance"
    if finding.kind == "memory":
        return "host_memory"
    for cause, pattern in _WORDS:
        if pattern.search(function.name):
            return cause
    if any(_WORDS[-1][1].search(caller) for caller in function.stack[1:_CALLERS]):
        return "data_loading"
    return "cpu_contention" if is_idle and "sleep" not in function.name else "compute"


def _tell(finding: Finding) -> str:
    who = name_ranks(finding.ranks)
    share = f"{finding.taken:.1%} of the time"
    match finding.what:
        case "longer":
            said = f"{finding.function} takes {share} on {who}, {finding.usual:.1%} on others of the role"
        case "slower network":
            said = f"{finding.function} takes {share} on {who}, {finding.usual:.1%} elsewhere"
        case "common":
            said = f"{finding.function} takes {share} on all workers, expected at most {finding.usual:.0%}"
        case "uneven":
            said = "workers compute for different times at the same speed, and nobody stands out"
    if finding.use is not None and finding.what in ("longer", "slower network"):
        resource = "network" if finding.kind == "collective" else "processor"
        said += f"; its {resource} is used {finding.use:.0%} as much as there"
    return said


def _tell_stack(function: Known) -> list[str]:
    """Return who called it, the nearest first."""
    callers = function.stack[1:4]
    return [f"called by {', '.join(callers)}"] if callers else []
