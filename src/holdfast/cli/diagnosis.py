"""``holdfast diagnose``: who is to blame, from what all ranks of a job left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from holdfast.cli.files import one_line
from holdfast.cli.profiles import Wanted, find_profile, is_profiles, show_profiles
from holdfast.cli.trials import show_trial
from holdfast.diagnose.hangs import Hang, diagnose_hang
from holdfast.diagnose.wording import name_ranks
from holdfast.errors import InputError
from holdfast.findings import Suspect
from holdfast.observe.flight import read_dumps
from holdfast.observe.places import is_address

_UNSURE = 0.8
RULES = ("roles", "published")
"""By which workers' profiles are compared: ours, and EROICA's as it was published."""
TRACES = (".parquet", ".csv", ".jsonl", ".ndjson")
"""How the names of traces of operations end."""


def diagnose(places: Sequence[str], what_if: str | None, wanted: Wanted) -> None:
    """Read what ranks left behind, find the guilty ones, and show them."""
    as_json = wanted.as_json
    if len(places) == 1 and Path(places[0]).suffix in TRACES and not is_address(places[0]):
        show_trial(Path(places[0]), what_if, as_json=as_json)
        return
    if what_if is not None:
        raise InputError(f"--what-if needs a trace of operations, expected one file: {' or '.join(TRACES)}")
    if wanted.rule not in RULES:
        raise InputError(f"--rule is {wanted.rule!r}, expected {' or '.join(RULES)}")
    if find_profile(places) is not None or is_profiles(places):
        show_profiles(places, wanted)
        return
    far = next((place for place in places if is_address(place)), None)
    if far is not None:
        raise InputError(f"{far}: holds no traces of torch's profiler, expected *.json or *.json.gz")
    for value, flag in ((wanted.html, "--html"), (wanted.bundle, "--bundle"), (wanted.ray, "--ray")):
        if value is not None:
            raise InputError(f"{flag} needs profiles, expected a run or traces of torch's profiler")
    paths = [Path(place) for place in places]
    dumps = read_dumps(paths)
    hang = diagnose_hang(dumps)
    if as_json:
        sys.stdout.write(to_json(hang, [dump.rank for dump in dumps]) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    for line in to_lines(hang):
        console.print(one_line(line), highlight=False, markup=False, soft_wrap=True)


def to_json(hang: Hang, ranks: Sequence[int]) -> str:
    """Return what was found as one document; ``ranks`` are those that left a dump."""
    return msgspec.json.encode({**msgspec.to_builtins(hang), "ranks": list(ranks)}).decode()


def to_lines(hang: Hang) -> Iterator[str]:
    """Yield the verdict, the evidence for it, who waits, and whose dump is missing."""
    yield verdict(hang)
    for suspect in hang.suspects:
        yield f"  {name_ranks(suspect.ranks)} (confidence {suspect.confidence:.2f})"
        yield from (f"    {sentence}" for sentence in suspect.evidence)
    if hang.victims:
        yield f"{len(hang.victims)} of {hang.world_size} ranks wait for others: {name_ranks(hang.victims)}"
    if hang.missing:
        yield f"missing: no dump of {name_ranks(hang.missing)}"


def verdict(hang: Hang) -> str:
    """Return the answer in one line."""
    clear = [each for each in hang.suspects if each.confidence > _UNSURE]
    if clear:
        return f"{_to_blame(clear)}: {clear[0].evidence[0]}"
    if hang.suspects:
        return f"unsure who is to blame, perhaps {name_ranks(_ranks(hang.suspects))}"
    if hang.victims:
        return f"nobody can be blamed: {name_ranks(hang.victims)} wait, and nothing says for whom"
    return "nobody is to blame: no rank waits for another"


def _to_blame(suspects: Sequence[Suspect]) -> str:
    ranks = _ranks(suspects)
    return f"{name_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} to blame"


def _ranks(suspects: Sequence[Suspect]) -> list[int]:
    return sorted({rank for each in suspects for rank in each.ranks})
