"""A step played again with other durations: who waits for whom is taken from the record, how long is not.

As in the what-if analysis of Lin et al. (OSDI 2025). A worker has a stream for compute, one for collectives
and updates, and one for each direction of sending and receiving; what is in a stream goes in the order of
the record. A transfer begins when all its ends have come to it. Steps that are alike are played at once.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.observe.optrace import Floats, Ints, OpTrace

FORWARD, BACKWARD = "forward-compute", "backward-compute"
_SENDS = {
    "forward-send": ("forward-recv", FORWARD, 1),
    "backward-send": ("backward-recv", BACKWARD, -1),
}
"""What receives it, what makes it, and how many stages further."""
_FEEDS = {FORWARD: "forward-recv", BACKWARD: "backward-recv"}
_OF_STAGE = ("params-all-gather", "unshard-all-gather", "grads-reduce-scatter", "grads-all-reduce")
_OF_PIPELINE = ("embedding-grads-all-reduce",)
_OF_ALL = ("optimizer-clip-main-grad",)
"""Collectives by who takes part: the peers of a stage, the stages of a pipeline, everybody."""
_BEFORE = ("params-all-gather", "unshard-all-gather")
"""What the first compute of a step waits for."""


class Op(NamedTuple):
    """An operation of every step."""

    name: str
    dp: int
    stage: int
    number: int


class _Level(NamedTuple):
    """Operations of which none waits for another: those that begin together are side by side."""

    ops: Ints
    waits: Ints
    """For each, what has to be over; filled up with the number of an operation that always is."""
    firsts: Ints
    """Where each group begins."""
    group: Ints
    """Of each operation."""


class Steps(NamedTuple):
    """Steps with the same operations."""

    ops: list[Op]
    steps: list[int]
    left_out: list[int]
    """Steps with other operations than most."""
    groups: list[list[int]]
    """Operations that begin together; most are alone."""
    levels: list[_Level]
    start_s: Floats
    """By operation and step."""
    duration_s: Floats
    moved_s: Floats
    """Durations without the waiting for others: of a transfer, from when its last end has come to it."""

    @property
    def dps(self) -> Ints:
        """Of each operation."""
        return np.array([op.dp for op in self.ops])

    @property
    def stages(self) -> Ints:
        """Of each operation."""
        return np.array([op.stage for op in self.ops])

    @property
    def names(self) -> npt.NDArray[np.str_]:
        """Of each operation."""
        return np.array([op.name for op in self.ops])

    def play(self, duration_s: Floats) -> Floats:
        """Return how long a step takes, for durations by operation and whatever else (steps, cases)."""
        ends = np.zeros((len(self.ops) + 1, *duration_s.shape[1:]))
        for level in self.levels:
            ready = ends[level.waits].max(axis=1)
            begin = np.maximum.reduceat(ready, level.firsts, axis=0)[level.group]
            ends[level.ops] = begin + duration_s[level.ops]
        return np.asarray(ends.max(axis=0))


def lay_out(trace: OpTrace) -> Steps:
    """Find out what a step is made of."""
    steps, left_out, rows = _common_steps(trace)
    ops = [Op(trace.names[op], dp, stage, number) for op, dp, stage, number in _keys(trace, rows[:, 0])]
    start_s, duration_s = trace.start_s[rows], trace.duration_s[rows]
    chunk = trace.chunk[rows[:, 0]].tolist()
    groups = _groups(ops)
    waits = _waits(ops, np.median(start_s, axis=1), chunk)
    return Steps(
        ops=ops,
        steps=steps,
        left_out=left_out,
        groups=groups,
        levels=_levels(waits, groups),
        start_s=start_s,
        duration_s=duration_s,
        moved_s=_moved(start_s, duration_s, groups),
    )


# --- steps that are alike -----------------------------------------------------------------------


def _common_steps(trace: OpTrace) -> tuple[list[int], list[int], Ints]:
    """Return the steps that have the operations of most, the others, and the rows by operation and step."""
    order = np.lexsort((trace.number, trace.op, trace.stage, trace.dp, trace.step))
    step = trace.step[order]
    firsts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    parts = np.split(order, firsts[1:])
    kinds: dict[bytes, list[int]] = defaultdict(list)
    for place, part in enumerate(parts):
        columns = (trace.op[part], trace.dp[part], trace.stage[part], trace.number[part])
        kinds[np.stack(columns).tobytes()].append(place)
    most = max(kinds.values(), key=len)
    numbers = step[firsts].tolist()
    chosen = set(most)
    left_out = [number for place, number in enumerate(numbers) if place not in chosen]
    return [numbers[place] for place in most], left_out, np.stack([parts[place] for place in most], axis=1)


def _keys(trace: OpTrace, rows: Ints) -> list[tuple[int, int, int, int]]:
    columns = (trace.op[rows], trace.dp[rows], trace.stage[rows], trace.number[rows])
    return list(zip(*(column.tolist() for column in columns), strict=True))


# --- who waits for whom -------------------------------------------------------------------------


def _groups(ops: Sequence[Op]) -> list[list[int]]:
    """Return what begins together: both ends of a message, all members of a collective."""
    stages = 1 + max(op.stage for op in ops)
    together: dict[object, list[int]] = defaultdict(list)
    for place, op in enumerate(ops):
        together[_meeting(op, stages)].append(place)
    return list(together.values())


def _meeting(op: Op, stages: int) -> tuple[object, ...]:
    """Return the same for all that begin together."""
    if op.name in _SENDS:
        receive, _, further = _SENDS[op.name]
        return receive, op.dp, (op.stage + further) % stages, op.number
    if op.name in _OF_STAGE:
        return op.name, op.stage, op.number
    if op.name in _OF_PIPELINE:
        return op.name, "pipeline", op.dp, op.number
    if op.name in _OF_ALL:
        return op.name, op.number
    return tuple(op)


def _waits(ops: Sequence[Op], start_s: Floats, chunk: Sequence[int]) -> list[list[int]]:
    """Return what each operation of a worker waits for on that same worker."""
    waits: list[list[int]] = [[] for _ in ops]
    streams: dict[tuple[int, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place in np.argsort(start_s, kind="stable").tolist():
        op = ops[place]
        streams[op.dp, op.stage][_stream(op.name)].append(place)
    last_chunk = max(chunk)
    for mine in streams.values():
        for stream in mine.values():
            for before, after in itertools.pairwise(stream):
                waits[after].append(before)
        _join_compute(mine, ops, waits)
        _join_messages(mine, ops, waits, chunk, last_chunk)
    return waits


def _stream(name: str) -> str:
    if name in (FORWARD, BACKWARD):
        return "compute"
    return name if name.endswith(("-send", "-recv")) else "collective"


def _join_compute(mine: Mapping[str, list[int]], ops: Sequence[Op], waits: list[list[int]]) -> None:
    """Let compute wait for the parameters, and the gradients' collectives for compute."""
    compute, others = mine.get("compute", []), mine.get("collective", [])
    before = [place for place in others if ops[place].name in _BEFORE]
    after = [place for place in others if ops[place].name not in _BEFORE]
    receives = [stream[0] for name, stream in mine.items() if name.endswith("-recv")]
    if before:
        for first in (*compute[:1], *receives):
            waits[first].append(before[0])
    if compute and after:
        waits[after[0]].append(compute[-1])


def _join_messages(
    mine: Mapping[str, list[int]],
    ops: Sequence[Op],
    waits: list[list[int]],
    chunk: Sequence[int],
    last_chunk: int,
) -> None:
    """Let compute wait for what it is fed with, and messages for what they carry: in their order."""
    compute = mine.get("compute", [])
    for name, receive in _FEEDS.items():
        end = 0 if name == FORWARD else last_chunk
        fed = [place for place in compute if ops[place].name == name and chunk[place] != end]
        for needs, message in zip(fed, mine.get(receive, []), strict=False):
            waits[needs].append(message)
    for send, (_, name, _) in _SENDS.items():
        end = last_chunk if name == FORWARD else 0
        made = [place for place in compute if ops[place].name == name and chunk[place] != end]
        for message, needs in zip(mine.get(send, []), made, strict=False):
            waits[message].append(needs)


def _levels(waits: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> list[_Level]:
    """Return the groups by how many others have to be over before; ValueError if they wait in a circle."""
    group_of = {place: number for number, group in enumerate(groups) for place in group}
    before = [{group_of[each] for place in group for each in waits[place]} for group in groups]
    after: list[list[int]] = [[] for _ in groups]
    missing = [len(each) for each in before]
    for number, each in enumerate(before):
        for other in each:
            after[other].append(number)
    ready = [number for number, count in enumerate(missing) if count == 0]
    levels = []
    done = 0
    while ready:
        levels.append(_make_level([groups[number] for number in ready], waits))
        done += len(ready)
        following = []
        for number in ready:
            for other in after[number]:
                missing[other] -= 1
                if missing[other] == 0:
                    following.append(other)
        ready = following
    if done < len(groups):
        raise ValueError("operations wait for each other in a circle")
    return levels


def _make_level(groups: Sequence[Sequence[int]], waits: Sequence[Sequence[int]]) -> _Level:
    ops = [place for group in groups for place in group]
    widest = max(1, *(len(waits[place]) for place in ops))
    sizes = np.array([len(group) for group in groups])
    return _Level(
        ops=np.array(ops),
        waits=np.array([[*waits[place], *[-1] * (widest - len(waits[place]))] for place in ops]),
        firsts=np.cumsum(sizes) - sizes,
        group=np.repeat(np.arange(len(groups)), sizes),
    )


def _moved(start_s: Floats, duration_s: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    moved_s = duration_s.copy()
    for group in groups:
        if len(group) > 1:
            last_s = start_s[group].max(axis=0)
            moved_s[group] = np.maximum(0.0, start_s[group] + duration_s[group] - last_s)
    return moved_s
