"""What others would say of the same traces: an HTA-like finder of stragglers, an NVRx-like score.

Both are written from their descriptions. They name ranks, no causes; EROICA's own rule names functions and
ranks and is part of the product (``--rule published``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from holdfast.observe.kineto import Trace, read_trace

_LONG = 0.01
"""Of an iteration: collectives that are shorter are not looked at."""
_SLOW = 0.75


def read_all(traces: Mapping[int, str]) -> dict[int, Trace]:
    """Read the traces of all ranks."""
    return {rank: read_trace(Path(path)) for rank, path in sorted(traces.items())}


def latest_starters(traces: Mapping[int, Trace], count: int) -> list[int]:
    """Return the ranks that most often start the most uneven collective last: so many, healthy or not."""
    starts: dict[str, dict[int, dict[int, tuple[float, float]]]] = defaultdict(lambda: defaultdict(dict))
    lengths = []
    for rank, trace in traces.items():
        ends = sorted(mark.end_us for mark in trace.marks if mark.name.startswith("Optimizer.step#"))
        lengths += np.diff(ends).tolist()
        for event in range(len(trace.function)):
            function = trace.functions[trace.function[event]]
            if function.kind == "collective":
                begun = float(trace.start_us[event])
                iteration = int(np.searchsorted(ends, begun))
                at = begun + trace.base_ns / 1e3
                lasted = float(trace.end_us[event]) - begun
                starts[function.name][iteration][rank] = (at, lasted)  # The last one of an iteration stays.
    mean = float(np.mean(lengths)) if lengths else 1.0
    whole = {
        name: [each for each in by_step.values() if len(each) == len(traces)]
        for name, by_step in starts.items()
    }
    spread = {
        name: float(np.mean([np.std([lasted for _, lasted in each.values()]) for each in steps]))
        for name, steps in whole.items()
        if steps and max(lasted for each in steps for _, lasted in each.values()) > _LONG * mean
    }
    if not spread:
        return []
    votes: Counter[int] = Counter()
    for each in whole[max(spread, key=lambda name: spread[name])]:
        votes.update(sorted(each, key=lambda rank: -each[rank][0])[:count])
    return sorted(rank for rank, _ in votes.most_common(count))


def low_scores(traces: Mapping[int, Trace]) -> list[int]:
    """Return the ranks whose operations take longer than the fastest rank's, below a score of 0.75."""
    medians: dict[str, dict[int, float]] = defaultdict(dict)
    totals: dict[int, dict[str, float]] = defaultdict(dict)
    for rank, trace in traces.items():
        lasted = trace.end_us - trace.start_us
        for number, function in enumerate(trace.functions):
            if function.kind == "compute":
                mine = lasted[trace.function == number]
                medians[function.name][rank] = float(np.median(mine))
                totals[rank][function.name] = float(mine.sum())
    found = []
    for rank, mine in totals.items():
        common = [name for name in mine if len(medians[name]) == len(traces) and medians[name][rank] > 0]
        weight = sum(mine[name] for name in common)
        score = sum(mine[name] * min(medians[name].values()) / medians[name][rank] for name in common)
        if weight > 0 and score / weight < _SLOW:
            found.append(rank)
    return found
