"""Traces of many workers reduced side by side, each in a process of its own: only patterns come back.

As a program it does so for the guard of a node that trains, leaves most cores alone, and compresses traces.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from holdfast.diagnose.reduce import Known, Samples, WorkerPattern, reduce_trace
from holdfast.errors import InputError
from holdfast.guard.usage import Series
from holdfast.job.files import replace_file
from holdfast.observe.flight import rank_of
from holdfast.observe.kineto import read_trace
from holdfast.telemetry import Channel

ENDINGS = (".json", ".json.gz")
_SHARED = ("cpu", "device", "network")
"""Resources that decide how fast a function is."""
_MOST = 0.99
_NICE = 19
_TRAINING = 8
"""Of so many cores, one is used beside a training."""
_STEP = re.compile(r"ProfilerStep#\d+|Optimizer\.step#")


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one worker's trace."""

    path: str
    usage: dict[str, float] = {}
    """Mean use of each resource, per second."""
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


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of all traces of a node."""

    reduced: list[Reduced]
    unread: list[Unread]


Usage = Mapping[int, Mapping[str, Series]]
"""By rank and resource."""


def reduce_file(path: Path, usage: Usage | None = None) -> Reduced | Unread:
    """Read a trace and reduce it, with what its rank used meanwhile."""
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
    mine = (usage or {}).get(rank, {})
    scale = network_scale(usage or {})
    pattern, known = reduce_trace(trace, rank, to_samples(mine, trace.base_ns, scale), steps, scale)
    return Reduced(
        path=str(path),
        usage={name: float(np.mean(each.per_s)) for name, each in mine.items() if each.per_s},
        pattern=pattern,
        known=known,
        world_size=trace.world_size,
        groups=[Channel(number=0, kind="group", name=name, ranks=ranks) for name, ranks in trace.groups],
        events=trace.events,
        broken=trace.broken,
    )


def reduce_all(
    paths: Sequence[Path],
    on_done: Callable[[], None] = lambda: None,
    *,
    usage: Usage | None = None,
    most_cores: int = 1024,
) -> Iterator[Reduced | Unread]:
    """Yield what is left of each trace, in order; as many at a time as there are cores."""
    cores = min(most_cores, len(os.sched_getaffinity(0)))
    if len(paths) == 1 or cores == 1:
        for path in paths:
            yield reduce_file(path, usage)
            on_done()
        return
    with ProcessPoolExecutor(min(cores, len(paths))) as pool:
        for found in pool.map(partial(reduce_file, usage=usage), paths):
            yield found
            on_done()


def to_samples(usage: Mapping[str, Series], base_ns: int, scale: float) -> dict[str, Samples]:
    """Return the use of resources as shares, on the clock of a trace; nothing where that is not told."""
    if not base_ns:
        return {}
    return {
        name: Samples(
            at_us=(np.array(each.at_ns, np.int64) - base_ns) / 1e3,
            share=np.clip(np.array(each.per_s) / (scale if name == "network" else 1.0), 0, 1),
        )
        for name, each in usage.items()
        if name in _SHARED
    }


def network_scale(usage: Usage) -> float:
    """Return what counts as a whole share of the network: near the most that any rank of the node had."""
    seen = [np.array(mine["network"].per_s) for mine in usage.values() if "network" in mine]
    most = max((float(np.quantile(each, _MOST)) for each in seen if len(each)), default=0.0)
    return most if most > 0 else 1.0


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


# --- as a program -------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Reduce traces, write what is left of them, and compress them."""
    parser = argparse.ArgumentParser(prog="holdfast.guard.reducing", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--usage", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    os.nice(_NICE)
    usage = msgspec.msgpack.decode(args.usage.read_bytes(), type=dict[int, dict[str, Series]])
    cores = max(1, len(os.sched_getaffinity(0)) // _TRAINING)
    found = list(reduce_all(args.traces, usage=usage, most_cores=cores))
    reduced = [each for each in found if isinstance(each, Reduced)]
    unread = [each for each in found if isinstance(each, Unread)]
    replace_file(args.out, msgspec.msgpack.encode(Found(reduced=reduced, unread=unread)))
    for path in args.traces:
        _compress(path)
    return 0


def _compress(path: Path) -> None:
    fresh = path.with_name(path.name + ".gz")
    try:
        with path.open("rb") as plain, gzip.open(fresh, "wb", compresslevel=1) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        path.unlink()
    except OSError:  # A full disk: then the plain one stays.
        fresh.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
