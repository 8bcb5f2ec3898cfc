"""``holdfast diagnose`` of profiles: traces of torch's profiler, one of each rank, or a profile of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress

from holdfast.cli.files import check_chart, one_line, write_chart
from holdfast.diagnose.case import Case, make_case
from holdfast.diagnose.reduce import Known
from holdfast.diagnose.telling import tell_duration, tell_suspect
from holdfast.diagnose.verdict import judge_as_published
from holdfast.diagnose.wording import name_ranks
from holdfast.errors import InputError
from holdfast.guard.jobprofile import read_profile, to_case
from holdfast.guard.onray import map_on_ray
from holdfast.guard.reducing import Reduced, Unread, find_traces, reduce_all
from holdfast.observe.places import is_address, opened

_HEAD = 1 << 20
JOB = "job.json"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of profiles."""

    rule: str = "roles"
    as_json: bool = False
    html: Path | None = None
    bundle: Path | None = None
    ray: str | None = None
    """Address of a cluster that reads the traces; None: this machine does."""


def is_profiles(places: Sequence[str]) -> bool:
    """Say whether these are traces of a profiler: by the first that could be one."""
    traces = find_traces(places)
    if not traces:
        return False
    try:
        with opened(traces[0]) as stream:
            head = stream.read(_HEAD)
    except InputError:
        return False
    return head.startswith(b"\x1f\x8b") or b'"traceEvents"' in head or b'"ph"' in head


def find_profile(places: Sequence[str]) -> Path | None:
    """Return the profile that is meant: a folder that ``holdfast profile`` made, or a run's newest one."""
    if len(places) != 1 or is_address(places[0]) or not (path := Path(places[0])).is_dir():
        return None
    if (path / JOB).is_file():
        return path / JOB
    inside = sorted(path.glob(f"profiles/*/{JOB}"), key=lambda each: each.stat().st_mtime)
    return inside[-1] if inside else None


def show_profiles(places: Sequence[str], wanted: Wanted) -> None:
    """Read all traces, compare the ranks, and show who is to blame."""
    check(wanted)
    kept = find_profile(places)
    case = to_case(read_profile(kept), kept.parent) if kept is not None else read_case(places, wanted.ray)
    show_case(case, wanted)


def check(wanted: Wanted) -> None:
    """Refuse before anything long begins what could not be written afterwards."""
    for path, flag, ending in ((wanted.html, "--html", ".html"), (wanted.bundle, "--bundle", ".md")):
        if path is not None:
            check_chart(path, flag, (ending,))


def show_case(case: Case, wanted: Wanted) -> None:
    """Write what was asked for, and say who is to blame."""
    if wanted.rule == "published":
        found = judge_as_published(case.workers, case.known, np.random.default_rng(0))
        _show_published(found, as_json=wanted.as_json)
        return
    if wanted.html is not None:
        from holdfast.serve.diagnosepage import draw_page

        write_chart(wanted.html, draw_page(case), "--html")
    if wanted.bundle is not None:
        from holdfast.serve.bundle import write_bundle

        write_chart(wanted.bundle, write_bundle(case), "--bundle")
    if wanted.as_json:
        document = {**msgspec.to_builtins(case.verdict), "unread": list(case.unread)}
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    for line in to_lines(case):
        console.print(one_line(line), highlight=False, markup=False, soft_wrap=True)


def read_case(places: Sequence[str], ray: str | None = None) -> Case:
    """Reduce all traces, on a Ray cluster where one is given, and compare them."""
    reduced, unread = _read(find_traces(places), ray)
    known: dict[int, Known] = {}
    for each in reduced:
        known |= each.known
    groups = {each.pattern.rank: each.groups for each in reduced}
    size = max((each.world_size or 0 for each in reduced), default=0)
    case = make_case([each.pattern for each in reduced], known, groups, size)
    traces = {each.pattern.rank: each.path for each in reduced}
    return msgspec.structs.replace(case, traces=traces, unread=[each.why for each in unread])


def _read(traces: Sequence[str], ray: str | None) -> tuple[list[Reduced], list[Unread]]:
    """Reduce all traces; two of one rank are refused, and so is a folder without a single one."""
    console = Console(stderr=True)
    spread = map_on_ray(ray) if ray is not None else None
    reduced: dict[int, Reduced] = {}
    unread: list[Unread] = []
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("traces", total=len(traces))
        for found in reduce_all(traces, lambda: bar.advance(task), spread=spread):
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


def to_lines(case: Case) -> Iterator[str]:
    """Yield who is to blame, the evidence, who waits, and what could not be read."""
    verdict = case.verdict
    if case.about:
        yield case.about
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
    for why in case.unread:
        yield f"not read: {why}"
    if case.blocked_s is not None:
        yield f"training stood still for {tell_duration(case.blocked_s)} to be profiled"


def _show_published(found: Sequence[tuple[str, list[int]]], *, as_json: bool) -> None:
    if as_json:
        rows = [{"function": name, "ranks": ranks} for name, ranks in found]
        sys.stdout.write(msgspec.json.encode({"rule": "published", "abnormal": rows}).decode() + "\n")
        return
    for name, ranks in found:
        sys.stdout.write(f"{one_line(name)}: {name_ranks(ranks)}\n")
