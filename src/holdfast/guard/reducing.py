"""Traces of many workers reduced side by side, each in a process of its own: only patterns come back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from holdfast.diagnose.reduce import Known, WorkerPattern, reduce_trace
from holdfast.errors import InputError
from holdfast.observe.flight import rank_of
from holdfast.observe.kineto import read_trace
from holdfast.telemetry import Channel

ENDINGS = (".json", ".json.gz")
_STEP = re.compile(r"ProfilerStep#\d+|Optimizer\.step#")


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one worker's trace."""

    path: str
    pattern: WorkerPattern
    known: dict[int, Known]
    world_size: int | None
    groups: list[Channel]
    events: int
    broken: int


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is no trace, or not a whole one."""

    path: str
    why: str


def reduce_file(path: Path) -> Reduced | Unread:
    """Read a trace and reduce it."""
    try:
        trace = read_trace(path)
    except InputError as error:
        return Unread(path=str(path), why=str(error))
    bare = path.with_name(path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace"))
    rank = trace.rank if trace.rank is not None else rank_of(bare)
    if rank is None:
        return Unread(
            path=str(path), why=f"{path}: tells no rank, expected one in distributedInfo or the name"
        )
    steps = sum(bool(_STEP.match(mark.name)) for mark in trace.marks)
    pattern, known = reduce_trace(trace, rank, {}, steps)
    return Reduced(
        path=str(path),
        pattern=pattern,
        known=known,
        world_size=trace.world_size,
        groups=[Channel(number=0, kind="group", name=name, ranks=ranks) for name, ranks in trace.groups],
        events=trace.events,
        broken=trace.broken,
    )


def reduce_all(
    paths: Sequence[Path], on_done: Callable[[], None] = lambda: None
) -> Iterator[Reduced | Unread]:
    """Yield what is left of each trace, as they come; as many at a time as there are cores."""
    cores = len(os.sched_getaffinity(0))
    if len(paths) == 1 or cores == 1:
        for path in paths:
            yield reduce_file(path)
            on_done()
        return
    with ProcessPoolExecutor(min(cores, len(paths))) as pool:
        for found in pool.map(reduce_file, paths):
            yield found
            on_done()


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """Return the traces in files and folders; none is opened, and what may never end, as a pipe, is none."""
    found: list[Path] = []
    for path in paths:
        try:
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        found += [each for each in inside if each.name.endswith(ENDINGS) and each.is_file()]
    return found
