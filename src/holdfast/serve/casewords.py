"""What a case says in words that page and bundle share: headline, ranks, costs, names of functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.diagnose.case import Case
from holdfast.diagnose.telling import tell_suspect
from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Suspect
from holdfast.serve.pageparts import clip

_LONG = 120
_PLACE = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<name>.+)$", re.DOTALL)


def headline(case: Case) -> str:
    """Return the verdict in a sentence: who, what, and what it costs."""
    verdict = case.verdict
    if not verdict.ranks:
        return "there is no profile to judge"
    if not verdict.suspects:
        if len(verdict.ranks) == 1:
            return (
                f"nobody is to blame: there is only {name_ranks(verdict.ranks)}, and none to compare it with"
            )
        return f"nobody is to blame: {len(verdict.ranks):,} ranks spend their time alike"
    first = verdict.suspects[0]
    share = cost_share(case, first)
    saved = "" if share is None else f"; without it {share:.0%} of the time would be saved"
    others = len(verdict.suspects) - 1
    more = f" ({others} more suspect{'s' * (others > 1)} below)" if others else ""
    return f"{_accuse(first, len(verdict.ranks))}{saved}{more}"


def _accuse(suspect: Suspect, count: int) -> str:
    """Return who and what, without where, how and how sure."""
    bare = msgspec.structs.replace(suspect, hosts=[], function=None)
    text = tell_suspect(bare).rpartition(" (")[0]
    if suspect.link is not None:
        return text
    if not len(suspect.ranks) == count > 1:
        return f"{few_ranks(suspect.ranks)}: {text.partition(': ')[2]}"
    everybody = "both ranks" if count == 2 else f"all {count:,} ranks"
    if suspect.cause == "input_imbalance":  # All cannot have more than the others.
        return f"{everybody}: some have more input than others"
    return f"{everybody}: {text.partition(': ')[2]}"


def cost_share(case: Case, suspect: Suspect) -> float | None:
    """Return the share of the time that a suspect costs, if that is known."""
    if suspect.cost_s is None or case.verdict.span_s <= 0:
        return None
    return suspect.cost_s / case.verdict.span_s


def tell_shortly(suspect: Suspect) -> str:
    """Return what is told of a suspect, with ranks and function short enough to be read."""
    function = None if suspect.function is None else short_name(suspect.function)
    text = tell_suspect(msgspec.structs.replace(suspect, function=function))
    return text.replace(name_ranks(suspect.ranks), few_ranks(suspect.ranks), 1) if suspect.ranks else text


def few_ranks(ranks: Iterable[int]) -> str:
    """Return ranks in words, the first ones where all would not be read."""
    listed = sorted(set(ranks))
    if not listed:
        return "no rank"
    text = name_ranks(listed)
    if len(text) <= _LONG:
        return text
    return f"{len(listed):,} ranks ({', '.join(map(str, listed[:8]))}, …)"


def guilty_ranks(case: Case) -> list[int]:
    """Return all ranks that are suspects, those of the dearest first."""
    return list(dict.fromkeys(rank for suspect in case.verdict.suspects for rank in suspect.ranks))


def place_of(function: str) -> tuple[str, int] | None:
    """Return file and line that a function's name tells, as in ``path/file.py(12): name``."""
    match = _PLACE.match(function)
    return None if match is None else (match["file"], int(match["line"]))


def short_name(function: str, most: int = 48) -> str:
    """Return a function's name as ``name (file.py:12)``; of a long one the two ends."""
    match = _PLACE.match(function)
    words = " ".join(function.split())
    if match is not None:
        words = f"{' '.join(match['name'].split())} ({match['file'].rpartition('/')[2]}:{match['line']})"
    elif words.startswith("<built-in "):
        words = words[1:].removesuffix(">").partition(" object at 0x")[0].removesuffix(" object")
    if len(words) <= most:
        return words
    return f"{words[: most - most // 3 - 1]}…{words[-(most // 3) :]}"


def bare_name(function: str, most: int) -> str:
    """Return only what a function is called, its end left out where it is long."""
    match = _PLACE.match(function)
    name = match["name"] if match is not None else short_name(function, 200)
    for said in ("built-in method ", "built-in function ", "nn.Module: "):
        name = name.removeprefix(said)
    return clean(name, most)


def short_names(stacks: Sequence[Sequence[str]], most: int) -> list[str]:
    """Return short names of functions; where two would be the same, with the caller that tells them apart."""
    names = [short_name(stack[0], most) for stack in stacks]
    alike: dict[str, list[Sequence[str]]] = {}
    for name, stack in zip(names, stacks, strict=True):
        alike.setdefault(name, []).append(stack)
    told = []
    for name, stack in zip(names, stacks, strict=True):
        depth = _parting(alike[name])
        caller = stack[depth] if 0 < depth < len(stack) else ""
        is_plain = len(alike[name]) == 1 or not caller
        told.append(
            name if is_plain else f"{short_name(stack[0], most // 2)} ← {bare_name(caller, most // 3)}"
        )
    return told


def _parting(stacks: Sequence[Sequence[str]]) -> int:
    """Return how far up some stacks are the same."""
    depth = 0
    while depth < min(map(len, stacks)) and len({stack[depth] for stack in stacks}) == 1:
        depth += 1
    return depth


def tell_length(case: Case) -> str:
    """Return how long the profiles are."""
    steps = sorted({worker.steps for worker in case.workers if worker.steps > 0})
    if not steps:
        return "in the median of the ranks"
    said = f"{steps[0]} step{'s' * (steps[0] > 1)}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]} steps"
    return f"{said}, in the median of the ranks"


def as_clause(text: str) -> str:
    """Return a text that begins with a capital."""
    return text[:1].upper() + text[1:]


def clean(text: str, most: int) -> str:
    """Return a text on one line, clipped."""
    return clip(" ".join(text.split()), most)
