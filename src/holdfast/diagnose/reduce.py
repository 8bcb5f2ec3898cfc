"""One worker's trace reduced to what is compared: three numbers for each function that took time.

A pattern is at most 1 KB, whatever the trace was. Functions go by a number that is the same on all workers;
what a number stands for is told once for a whole job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from holdfast.diagnose.criticalpath import own_us, span_us
from holdfast.diagnose.patterns import Patterns
from holdfast.diagnose.utilisation import Used, use
from holdfast.observe.kineto import Floats, Function, Kind, Trace

LEAST_BETA = 0.001
MOST_FUNCTIONS = 60
_NOISE = 0.02
"""Share of a resource that passes for none: counters are never quite still."""
_FULL = 65_535
RESOURCES: dict[Kind, str] = {"compute": "cpu", "memory": "cpu", "collective": "network", "python": "cpu"}
"""What decides the speed of each kind; where a device has a counter of its own, ``device`` before ``cpu``."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one resource a worker used, at many moments."""

    at_us: Floats
    share: Floats


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a function's number stands for."""

    kind: Kind
    stack: list[str]
    """The function itself first, then who called it."""

    @property
    def name(self) -> str:
        """Of the function itself."""
        return self.stack[0]


class WorkerPattern(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as it goes over the wire."""

    rank: int
    span_s: float
    steps: int
    numbers: bytes
    """Eight bytes for each function."""
    shares: bytes
    """Three times two bytes for each: beta, mu and sigma as parts of 65,535."""
    network_bytes_s: float = 1.0
    """What a whole share of the network is; it differs from node to node."""
    has_device: bool = False
    """Whether a device tells how fast it runs; else the use of compute is that of the processor."""


def reduce_trace(
    trace: Trace, rank: int, samples: Mapping[str, Samples], steps: int = 0, network_bytes_s: float = 1.0
) -> tuple[WorkerPattern, dict[int, Known]]:
    """Return a worker's pattern, and what its functions are."""
    own, span = own_us(trace), span_us(trace)
    beta = np.bincount(trace.function, weights=own, minlength=len(trace.functions)) / max(span, 1e-9)
    chosen = np.argsort(-beta, kind="stable")[:MOST_FUNCTIONS]
    chosen = chosen[beta[chosen] >= LEAST_BETA].tolist()
    order = np.argsort(trace.function, kind="stable")
    firsts = np.searchsorted(trace.function[order], np.arange(len(trace.functions) + 1))
    known, rows = {}, []
    for function in chosen:
        mine = order[firsts[function] : firsts[function + 1]]
        used = _used(trace.functions[function].kind, trace.start_us[mine], trace.end_us[mine], samples)
        rows.append((beta[function], used.mean, used.spread))
        told = Known(kind=trace.functions[function].kind, stack=_stack(trace.functions, function))
        known[number_of(told)] = told
    shares = np.clip(np.array(rows).reshape(-1, 3), 0, 1) * _FULL
    pattern = WorkerPattern(
        rank=rank,
        span_s=span / 1e6,
        steps=steps,
        numbers=np.array(list(known), np.uint64).tobytes(),
        shares=shares.round().astype(np.uint16).tobytes(),
        network_bytes_s=network_bytes_s,
        has_device="device" in samples,
    )
    return pattern, known


def _used(kind: Kind, starts: Floats, ends: Floats, samples: Mapping[str, Samples]) -> Used:
    wanted = ("device", RESOURCES[kind]) if kind == "compute" else (RESOURCES[kind],)
    found = next((samples[name] for name in wanted if name in samples), None)
    return Used(0.0, 0.0) if found is None else use(starts, ends, found.at_us, found.share, _NOISE)


def _stack(functions: Sequence[Function], function: int) -> list[str]:
    names = []
    while function >= 0:
        names.append(functions[function].name)
        function = functions[function].caller
    return names


def number_of(known: Known) -> int:
    """Return a function's number: the same on every worker."""
    text = "\0".join([known.kind, *known.stack])
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")


def gather(
    workers: Iterable[WorkerPattern], known: Mapping[int, Known], least: float = 0.01
) -> tuple[Patterns, list[Known]]:
    """Put the patterns of all workers together; return them with the functions of their rows.

    Only functions that take time on some of the workers are kept.
    """
    by_rank = sorted(workers, key=lambda worker: worker.rank)
    numbers = [np.frombuffer(worker.numbers, np.uint64) for worker in by_rank]
    shares = [np.frombuffer(worker.shares, np.uint16).reshape(-1, 3) / _FULL for worker in by_rank]
    seen = {
        number
        for mine, share in zip(numbers, shares, strict=True)
        for number in mine[share[:, 0] >= least].tolist()
        if number in known
    }
    row_of = {number: row for row, number in enumerate(sorted(seen))}
    table = np.zeros((3, len(row_of), len(by_rank)), np.float32)
    for column, (mine, share) in enumerate(zip(numbers, shares, strict=True)):
        for number, values in zip(mine.tolist(), share, strict=True):
            if number in row_of:
                table[:, row_of[number], column] = values
    ordered = [known[number] for number in row_of]
    scales = np.array([worker.network_bytes_s for worker in by_rank], np.float32)
    networks = [row for row, each in enumerate(ordered) if each.kind == "collective"]
    if networks and scales.max() > 0:
        table[1:, networks] *= scales / scales.max()
    patterns = Patterns(
        names=[each.name for each in ordered],
        kinds=[each.kind for each in ordered],
        ranks=np.array([worker.rank for worker in by_rank], np.int64),
        beta=table[0],
        mu=table[1],
        sigma=table[2],
    )
    return patterns, ordered
