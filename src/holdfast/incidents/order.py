"""Records of several nodes in one order: by their clocks, but never against the order of a node's own log."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from holdfast.telemetry import Summary
from holdfast.values import Record


def merge_nodes(records: Iterable[Record], summaries: Iterable[Summary] = ()) -> Iterator[Record | Summary]:
    """Return all of them, told as they happened as far as clocks of different nodes agree.

    What one node wrote into one file stays in the order in which it was written, even where its clock was set
    back: a line counts as no earlier than those before it.
    """
    files: dict[tuple[str, int], list[Record | Summary]] = {}
    for record in records:
        files.setdefault(("events", record.stamp.node), []).append(record)
    for row in summaries:
        files.setdefault(("summaries", row.node), []).append(row)
    timed = [list(_timed(lines)) for _, lines in sorted(files.items(), key=lambda each: each[0])]
    for _, line in heapq.merge(*timed, key=lambda each: each[0]):
        yield line


def _timed(lines: Iterable[Record | Summary]) -> Iterator[tuple[float, Record | Summary]]:
    latest_s = -math.inf
    for line in lines:
        at_s = moment_s(line.stamp.at if isinstance(line, Record) else line.at)
        latest_s = max(latest_s, latest_s if at_s is None else at_s)
        yield latest_s, line


def moment_s(at: str) -> float | None:
    """Return a moment in seconds since 1970; None: it is no time. Without an offset it is UTC."""
    try:
        when = datetime.fromisoformat(at)
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def seconds_between(first: str, then: str) -> float:
    """Return the time between two moments, 0 where the clock ran backwards or one is not known."""
    first_s, then_s = moment_s(first), moment_s(then)
    return 0.0 if first_s is None or then_s is None else max(0.0, then_s - first_s)
