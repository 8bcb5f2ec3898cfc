"""``holdfast diagnose`` of profiles: traces of torch's profiler, one of each rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress

from holdfast.cli.files import one_line
from holdfast.diagnose.reduce import Known
from holdfast.diagnose.telling import tell_suspect
from holdfast.diagnose.verdict import Verdict, judge_as_published, judge_profiles
from holdfast.diagnose.wording import name_ranks
from holdfast.errors import InputError
from holdfast.guard.reducing import Reduced, Unread, find_traces, reduce_all

_HEAD = 1 << 20


def is_profiles(paths: Sequence[Path]) -> bool:
    """Say whether these are traces of a profiler: by the first that could be one."""
    traces = find_traces(paths)
    if not traces:
        return False
    try:
        with traces[0].open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError:
        return False
    return head.startswith(b"\x1f\x8b") or b'"traceEvents"' in head or b'"ph"' in head


def show_profiles(paths: Sequence[Path], rule: str, *, as_json: bool) -> None:
    """Read all traces, compare the ranks, and show who is to blame."""
    reduced, unread = _read(find_traces(paths))
    known: dict[int, Known] = {}
    for each in reduced:
        known |= each.known
    workers = [each.pattern for each in reduced]
    if rule == "published":
        _show_published(judge_as_published(workers, known, np.random.default_rng(0)), as_json=as_json)
        return
    groups = {each.pattern.rank: each.groups for each in reduced}
    size = max((each.world_size or 0 for each in reduced), default=0)
    verdict = judge_profiles(workers, known, groups, size)
    if as_json:
        document = {**msgspec.to_builtins(verdict), "unread": msgspec.to_builtins(unread)}
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    for line in to_lines(verdict, unread):
        console.print(one_line(line), highlight=False, markup=False, soft_wrap=True)


def _read(paths: Sequence[Path]) -> tuple[list[Reduced], list[Unread]]:
    """Reduce all traces; two of one rank are refused, and so is a folder without a single one."""
    console = Console(stderr=True)
    reduced: dict[int, Reduced] = {}
    unread: list[Unread] = []
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("traces", total=len(paths))
        for found in reduce_all(paths, lambda: bar.advance(task)):
            if isinstance(found, Unread):
                unread.append(found)
                continue
            rank = found.pattern.rank
            if rank in reduced:
                other = reduced[rank].path
                raise InputError(f"{found.path}: is of rank {rank}, as is {other}; expected one per rank")
            reduced[rank] = found
    if not reduced:
        raise InputError(unread[0].why)
    return [reduced[rank] for rank in sorted(reduced)], unread


def to_lines(verdict: Verdict, unread: Sequence[Unread]) -> Iterator[str]:
    """Yield who is to blame, the evidence, who waits, and what could not be read."""
    if not verdict.suspects:
        yield f"nobody is to blame: {len(verdict.ranks)} ranks spend their time alike"
    for suspect in verdict.suspects:
        yield tell_suspect(suspect)
        yield from (f"    {sentence}" for sentence in suspect.evidence)
        if suspect.cost_s is not None and verdict.span_s > 0:
            yield f"    without it {suspect.cost_s / verdict.span_s:.0%} of the time would be saved"
    if verdict.victims:
        yield f"{name_ranks(verdict.victims)} wait for others"
    if verdict.missing:
        yield f"missing: no trace of {name_ranks(verdict.missing)}"
    for each in unread:
        yield f"not read: {each.why}"


def _show_published(found: Sequence[tuple[str, list[int]]], *, as_json: bool) -> None:
    if as_json:
        rows = [{"function": name, "ranks": ranks} for name, ranks in found]
        sys.stdout.write(msgspec.json.encode({"rule": "published", "abnormal": rows}).decode() + "\n")
        return
    for name, ranks in found:
        sys.stdout.write(f"{one_line(name)}: {name_ranks(ranks)}\n")
