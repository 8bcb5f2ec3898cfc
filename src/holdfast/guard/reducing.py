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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from holdfast.diagnose.reduce import Known, Samples, WorkerPattern, reduce_trace
from holdfast.errors import InputError
from holdfast.guard.usage import Series
from holdfast.job.files import replace_file
from holdfast.observe.flight import rank_of
from holdfast.observe.kineto import read_trace
from holdfast.observe.places import list_files
from holdfast.telemetry import Channel

_USAGE = msgspec.msgpack.Decoder(dict[int, dict[str, Series]])
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


def reduce_file(path: str, usage: Usage | None = None) -> Reduced | Unread:
    """Read a trace and reduce it, with what its rank used meanwhile."""
    try:
        trace = read_trace(path)
    except InputError as error:
        return Unread(path=path, why=str(error))
    name = Path(path).name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    rank = trace.rank if trace.rank is not None else rank_of(Path(name))
    if rank is None:
        return Unread(path=path, why=f"{path}: tells no rank, expected one in distributedInfo or the name")
    steps = sum(bool(_STEP.match(mark.name)) for mark in trace.marks)
    mine = (usage or {}).get(rank, {})
    scale = network_scale(usage or {})
    pattern, known = reduce_trace(trace, rank, to_samples(mine, trace.base_ns, scale), steps, scale)
    return Reduced(
        path=path,
        usage={name: float(np.mean(each.per_s)) for name, each in mine.items() if each.per_s},
        pattern=pattern,
        known=known,
        world_size=trace.world_size,
        groups=[Channel(number=0, kind="group", name=name, ranks=ranks) for name, ranks in trace.groups],
        events=trace.events,
        broken=trace.broken,
    )


class Spread(Protocol):
    """A ``map`` over traces, on however many machines."""

    def __call__(
        self, function: Callable[[str], Reduced | Unread], items: Iterable[str], /
    ) -> Iterable[Reduced | Unread]:
        """Return what the function makes of each, in order."""
        ...


def reduce_all(
    traces: Sequence[str],
    on_done: Callable[[], None] = lambda: None,
    *,
    usage: Usage | None = None,
    spread: Spread | None = None,
) -> Iterator[Reduced | Unread]:
    """Yield what is left of each trace, in order; as many at a time as there are cores, unless told how."""
    work = partial(reduce_file, usage=usage)
    for found in (spread or on_cores(len(traces)))(work, traces):
        yield found
        on_done()


def on_cores(traces: int, most: int = 1024) -> Spread:
    """Return a ``map`` over the cores of this machine, each in a process of its own."""
    cores = min(most, len(os.sched_getaffinity(0)), traces)

    def spread(
        function: Callable[[str], Reduced | Unread], items: Iterable[str]
    ) -> Iterator[Reduced | Unread]:
        if cores <= 1:
            yield from map(function, items)
            return
        with ProcessPoolExecutor(cores) as pool:
            yield from pool.map(function, items)

    return spread


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


def find_traces(places: Sequence[str]) -> list[str]:
    """Return the traces in files and folders, here or at addresses; none is opened."""
    return [trace for place in places for trace in list_files(place, ENDINGS)]


# --- as a program -------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Reduce traces, write what is left of them, and compress them."""
    parser = argparse.ArgumentParser(prog="holdfast.guard.reducing", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--usage", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    os.nice(_NICE)
    usage = _USAGE.decode(args.usage.read_bytes())
    cores = max(1, len(os.sched_getaffinity(0)) // _TRAINING)
    traces = [str(path) for path in args.traces]
    found = list(reduce_all(traces, usage=usage, spread=on_cores(len(traces), cores)))
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
