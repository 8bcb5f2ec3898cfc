"""When nodes came and went: traces as values, read from text or drawn from a generator.

Two formats are read, both of Bamboo's artifact (NSDI'23): ``ms,add|remove,node`` and
``YYYY-MM-DD, HH:MM:SS, count``. Two kinds are made: one removal at a fixed interval until half of the nodes
are gone, as in Oobleck's artifact (SOSP'23), and failures at a constant rate with a repair time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from holdfast.errors import InputError

_NODE_ROW = re.compile(r"([0-9]{1,15})\s*,\s*(add|remove)\s*,\s*([^\s,]{1,100})")
_COUNT_ROW = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\s*,\s*([0-9]{2}:[0-9]{2}:[0-9]{2})\s*,\s*([0-9]{1,6})")
NODE_FORM = "'MILLISECONDS,add|remove,NODE'"
COUNT_FORM = "'YYYY-MM-DD, HH:MM:SS, COUNT'"
MOST_NODES = 100_000
MOST_FAILURES = 1_000_000
MOST_CHANGES = 2 * MOST_FAILURES
MOST_DAYS = 3650
"""Ten years: a simulation of more takes longer than anybody waits."""
FURTHEST_BACK_S = 3600.0
DAY_S = 86_400.0


class NodeChange(msgspec.Struct, frozen=True):
    """A node that came or went."""

    at_s: float
    node: str
    is_up: bool


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that were there at the beginning, and every change until the end, in the order of time."""

    nodes: tuple[str, ...]
    changes: tuple[NodeChange, ...]
    duration_s: float
    origin: str
    """Where it comes from, in words."""

    @property
    def removals(self) -> int:
        """How many nodes were lost, over all of it."""
        return sum(not change.is_up for change in self.changes)


def parse_trace(text: str, rng: random.Random) -> Trace:
    """Return the trace in a text of either format; its first row says which. See ``parse_counts`` for rng."""
    for row, line in _rows(text):
        if _NODE_ROW.fullmatch(line):
            return parse_nodes(text)
        if _COUNT_ROW.fullmatch(line):
            return parse_counts(text, rng)
        raise _bad(row, line, f"{NODE_FORM} or {COUNT_FORM}")
    raise InputError(f"there are no rows, expected {NODE_FORM} or {COUNT_FORM}")


def parse_nodes(text: str) -> Trace:
    """Return the trace of a text with one ``ms,add|remove,node`` per row; time 0 tells who is there first."""
    changes: list[NodeChange] = []
    up: dict[str, int] = {}
    for row, line in _rows(text):
        change = _node_change(row, line)
        if changes and change.at_s < changes[-1].at_s:
            raise _bad(row, line, f"{1000 * changes[-1].at_s:.0f} ms or later, as in the row before")
        if change.is_up == (change.node in up):
            raise _bad(row, line, f"a node that is {'not there yet' if change.is_up else 'there'}")
        if change.is_up:
            up[change.node] = row
        else:
            del up[change.node]
        changes.append(change)
    first = [change.node for change in changes if change.at_s == 0 and change.is_up]
    gone = {change.node for change in changes if change.at_s == 0 and not change.is_up}
    return _make(
        nodes=[node for node in first if node not in gone],
        changes=[change for change in changes if change.at_s > 0],
        origin="nodes that come and go",
    )


def parse_counts(text: str, rng: random.Random) -> Trace:
    """Return the trace of a text with one ``date, time, count`` per row; rng draws which nodes leave.

    Loggers repeat themselves, and a repetition can carry a later time than the news that is logged after it.
    So rows count in the order of the file, and each overrules what earlier rows said of later times.
    """
    series: list[tuple[float, int]] = []
    began: datetime | None = None
    for row, line in _rows(text):
        when, count = _count_row(row, line)
        began = began or when
        at_s = (when - began).total_seconds()
        latest_s = series[-1][0] if series else 0.0
        if at_s < max(0.0, latest_s - FURTHEST_BACK_S):
            raise _bad(row, line, "a time not before row 1, at most an hour before the row above")
        while series and series[-1][0] >= at_s:
            series.pop()
        series.append((at_s, count))
    if not series:
        raise InputError(f"there are no rows, expected {COUNT_FORM}")
    return _from_counts(series, rng)


def make_fixed(*, nodes: int, every_s: float, rng: random.Random) -> Trace:
    """Return a trace that loses one node every so many seconds and ends when half of them are gone."""
    _check_positive("the interval", every_s)
    names = _name_nodes(nodes)
    gone = rng.sample(names, nodes // 2)
    changes = [NodeChange((index + 1) * every_s, node, False) for index, node in enumerate(gone)]
    return _make(
        nodes=names, changes=changes, origin=f"one node lost every {every_s / 60:g} min until half are gone"
    )


def make_poisson(
    *, nodes: int, per_node_day: float, repair_s: float, duration_s: float, rng: random.Random
) -> Trace:
    """Return a trace in which every node fails at a constant rate and is back after a fixed time."""
    _check_positive("the number of failures per node-day", per_node_day)
    _check_positive("the repair time", repair_s)
    _check_positive("the length", duration_s)
    names = _name_nodes(nodes)
    rate = per_node_day / DAY_S
    expected = nodes * duration_s / (repair_s + 1 / rate)
    if expected > MOST_FAILURES:
        raise InputError(f"about {expected:,.0f} failures, expected at most {MOST_FAILURES:,}")
    changes = [change for node in names for change in _life(node, rate, repair_s, duration_s, rng)]
    order = {node: index for index, node in enumerate(names)}
    changes.sort(key=lambda change: (change.at_s, order[change.node]))
    origin = f"{per_node_day:g} failures per node-day, back after {repair_s / 60:g} min"
    return _make(nodes=names, changes=changes, origin=origin, duration_s=duration_s)


def _life(
    node: str, rate: float, repair_s: float, duration_s: float, rng: random.Random
) -> Iterator[NodeChange]:
    at_s = rng.expovariate(rate)
    while at_s < duration_s:
        yield NodeChange(at_s, node, False)
        if at_s + repair_s < duration_s:
            yield NodeChange(at_s + repair_s, node, True)
        at_s += repair_s + rng.expovariate(rate)


def _from_counts(series: list[tuple[float, int]], rng: random.Random) -> Trace:
    up = _name_nodes(series[0][1]) if series[0][1] else []
    first, named = tuple(up), len(up)
    changes: list[NodeChange] = []
    for at_s, count in series[1:]:
        gone = rng.sample(up, max(0, len(up) - count))
        if gone:
            absent = set(gone)
            up = [node for node in up if node not in absent]
        come = [f"node{named + 1 + index}" for index in range(count - len(up))]
        named += len(come)
        up += come
        changes += [NodeChange(at_s, node, False) for node in gone]
        changes += [NodeChange(at_s, node, True) for node in come]
        if len(changes) > MOST_CHANGES:
            raise InputError(f"more than {MOST_CHANGES:,} nodes come or go, expected no more")
    return _make(
        nodes=list(first),
        changes=changes,
        origin="counts of nodes; who leaves is drawn",
        duration_s=series[-1][0],
    )


def _make(
    *, nodes: list[str], changes: list[NodeChange], origin: str, duration_s: float | None = None
) -> Trace:
    last_s = changes[-1].at_s if changes else 0.0
    length_s = last_s if duration_s is None else duration_s
    if length_s <= 0:
        raise InputError("the trace has no length, expected a row later than the first")
    if length_s > MOST_DAYS * DAY_S:
        raise InputError(f"the trace lasts {length_s / DAY_S:,.0f} days, expected at most {MOST_DAYS:,}")
    return Trace(nodes=tuple(nodes), changes=tuple(changes), duration_s=length_s, origin=origin)


def _name_nodes(count: int) -> list[str]:
    if not 1 <= count <= MOST_NODES:
        raise InputError(f"{count} nodes, expected 1 to {MOST_NODES}")
    return [f"node{number + 1}" for number in range(count)]


def _node_change(row: int, line: str) -> NodeChange:
    match = _NODE_ROW.fullmatch(line)
    if match is None:
        raise _bad(row, line, NODE_FORM)
    return NodeChange(int(match[1]) / 1000, match[3], match[2] == "add")


def _count_row(row: int, line: str) -> tuple[datetime, int]:
    match = _COUNT_ROW.fullmatch(line)
    if match is None or int(match[3]) > MOST_NODES:
        raise _bad(row, line, COUNT_FORM)
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}"), int(match[3])
    except ValueError as error:
        raise _bad(row, line, f"{COUNT_FORM} with a date and a time that exist") from error


def _rows(text: str) -> Iterator[tuple[int, str]]:
    """Yield every row that is not empty, with its number in the file."""
    for row, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield row, line.strip()


def _check_positive(what: str, value: float) -> None:
    if not 1e-15 <= value <= 1e15:
        raise InputError(f"{what} is {value:g}, expected a positive number, from 1e-15 to 1e+15")


def _bad(row: int, line: str, expected: str) -> InputError:
    return InputError(f"row {row} is {line[:60]!r}, expected {expected}")
