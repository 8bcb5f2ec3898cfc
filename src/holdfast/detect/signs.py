"""What is out of the ordinary about the host of a worker, in words and numbers.

Each worker is held against its own healthy rates, and against the other workers now. Signs are not verdicts:
they say what took time from a worker, and somebody else found out that it is slow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.detect.host import ProcessRates

HostCause = Literal["cpu_contention", "host_memory", "storage"]
Against = Literal["healthy", "others"]

_MANY = 16
_LEAST_SHARE = 0.05
"""Of the time; less would not be noticed in a step either."""
_LEAST_GROWTH = 1.25
_LEAST_OTHERS_SHARE = 0.1
"""Workers differ in what they do, so more is asked of a comparison between them."""
_LEAST_OTHERS_GROWTH = 2.0
_MINOR_FAULT_S = 1e-6
"""A trap and a page to be cleared; in a virtual machine it can be a few times as long."""
_MAJOR_FAULT_S = 100e-6
"""A page read from a fast drive; a slow one takes fifty times as long."""


class HostSign(msgspec.Struct, frozen=True, kw_only=True):
    """Something about its host that takes time from a worker."""

    cause: HostCause
    strength: float
    """The share of time that the worker lost by it, beyond what is ordinary; 0 to 1."""
    evidence: str
    against: Against = "healthy"
    """What it is beyond: its own healthy rate, or the others' where its own is not known or no less."""


class _Measure(msgspec.Struct, frozen=True):
    """One way to lose time."""

    cause: HostCause
    words: str
    """With a place for the number."""
    number: Callable[[ProcessRates], float | None]
    each_s: float = 1.0
    """What one of the number costs."""
    is_of_node: bool = False
    """Then others on the node may have felt it, and the worker only while it did nothing."""
    of_all: Callable[[ProcessRates], float | None] = lambda _: None
    """The same number over all threads, where it is that of one."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A measure that is out of the ordinary."""

    strength: float
    words: str
    against: Against


_MEASURES = (
    _Measure(
        "cpu_contention",
        "waited {} s per second for a processor",
        lambda r: r.main_run_queue_share,
        of_all=lambda r: r.run_queue_share,
    ),
    _Measure("cpu_contention", "was held up {} s per second by its CPU quota", lambda r: r.held_share),
    _Measure("cpu_contention", "lost {} s per second to other virtual machines", lambda r: r.stolen_share),
    _Measure("host_memory", "took {} page faults per second", lambda r: r.minor_faults_per_s, _MINOR_FAULT_S),
    _Measure(
        "host_memory", "had {} pages per second read back", lambda r: r.major_faults_per_s, _MAJOR_FAULT_S
    ),
    _Measure(
        "host_memory",
        "is on a node that swaps in {} pages per second",
        lambda r: r.node.swapped_in_per_s,
        _MAJOR_FAULT_S,
        is_of_node=True,
    ),
    _Measure(
        "host_memory",
        "is on a node short of memory for {} s per second",
        lambda r: r.node.memory_pressure_share,
        is_of_node=True,
    ),
    _Measure("storage", "waited {} s per second for storage", lambda r: r.block_io_share),
    _Measure(
        "storage",
        "is on a node that waits {} s per second for storage",
        # The worker's own delay is better, where the kernel counts it.
        lambda r: r.node.io_pressure_share if r.block_io_share is None else None,
        is_of_node=True,
    ),
)


def explain(
    rates: Mapping[int, ProcessRates], healthy: Mapping[int, ProcessRates]
) -> dict[int, list[HostSign]]:
    """Return per rank what took time from it, strongest first; ranks without a sign have an empty list."""
    # Of many, one more or less does not move the middle, and it has to be found only once.
    all_around = _around(list(rates.values())) if len(rates) >= _MANY else None
    found = {}
    for rank in sorted(rates):
        around = all_around or _around([each for other, each in rates.items() if other != rank])
        found[rank] = _signs(rates[rank], healthy.get(rank), around)
    return found


def _around(others: Sequence[ProcessRates]) -> list[float | None]:
    """Return the middle of what ranks do, for each measure."""
    found: list[float | None] = []
    for measure in _MEASURES:
        known = [number for each in others if (number := measure.number(each)) is not None]
        found.append(statistics.median(known) if known else None)
    return found


def _signs(now: ProcessRates, healthy: ProcessRates | None, around: Sequence[float | None]) -> list[HostSign]:
    parts: dict[HostCause, list[_Part]] = {}
    for measure, usual in zip(_MEASURES, around, strict=True):
        part = _examine(measure, now, healthy, usual)
        if part is not None:
            parts.setdefault(measure.cause, []).append(part)
    signs = [_join(cause, of_cause) for cause, of_cause in parts.items()]
    return sorted(signs, key=lambda sign: -sign.strength)


def _join(cause: HostCause, parts: Sequence[_Part]) -> HostSign:
    # Their strengths are not added up: the time that a quota takes is also waited for a processor.
    ordered = sorted(parts, key=lambda part: -part.strength)
    evidence = "; ".join(part.words for part in ordered)
    first = ordered[0]
    return HostSign(cause=cause, strength=first.strength, evidence=evidence, against=first.against)


def _examine(
    measure: _Measure, now: ProcessRates, healthy: ProcessRates | None, around: float | None
) -> _Part | None:
    number = measure.number(now)
    if number is None:
        return None
    own = None if healthy is None else measure.number(healthy)
    most = 1.0
    if measure.is_of_node and now.main_idle_share is not None:
        most = now.main_idle_share
    strength = {
        "healthy": min(most, _beyond(number, own, measure.each_s, _LEAST_GROWTH)),
        "others": min(most, _beyond(number, around, measure.each_s, _LEAST_OTHERS_GROWTH)),
    }
    words = _sentence(measure, now, own, around)
    if strength["healthy"] >= _LEAST_SHARE:
        return _Part(strength=strength["healthy"], words=words, against="healthy")
    if strength["others"] >= _LEAST_OTHERS_SHARE:
        return _Part(strength=strength["others"], words=words, against="others")
    return None


def _beyond(number: float, usual: float | None, each_s: float, least_growth: float) -> float:
    """Return the share of time lost beyond what is usual, 0 where that is not known or hardly less."""
    if usual is None or number < usual * least_growth:
        return 0.0
    return min(1.0, (number - usual) * each_s)


def _sentence(measure: _Measure, now: ProcessRates, own: float | None, around: float | None) -> str:
    number = measure.number(now)
    assert number is not None
    words = measure.words.format(_shown(measure, number))
    of_all = measure.of_all(now)
    if of_all is not None and of_all > 1.5 * number:
        words += f" ({of_all:.2f} over all its threads)"
    if own is not None:
        words += f", {_shown(measure, own)} when healthy"
    if around is not None:
        words += f", {_shown(measure, around)} on the other ranks"
    return words


def _shown(measure: _Measure, number: float) -> str:
    return f"{number:.2f}" if measure.each_s == 1.0 else f"{number:.0f}"
