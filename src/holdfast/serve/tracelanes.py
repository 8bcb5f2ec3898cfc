"""The end of a trace as a few blocks: one lane for each kind, small events merged until a lane can be drawn.

Of Python only the innermost function counts, in the thread that trains, as on the critical path.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from holdfast.diagnose.criticalpath import own_us
from holdfast.observe.kineto import KINDS, Floats, Ints, Kind, Trace

STEPS = 3
LONGEST_US = 2e6
"""What is shown where a trace does not tell its steps."""
MOST_BLOCKS = 200
"""In a lane."""
_BINS = 1000
_FINEST = 4000
_STEP = ("ProfilerStep", "Optimizer.step")
"""How names of marks begin that end with a step; the first of these that a trace has."""


class Block(msgspec.Struct, kw_only=True):
    """Events that are drawn as one."""

    start_us: float
    end_us: float
    names: dict[str, float]
    """How long each function took of it."""
    count: int = 1

    @property
    def name(self) -> str:
        """Of what took most of it."""
        return max(self.names, key=lambda name: self.names[name])


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a trace."""

    start_us: float
    end_us: float
    step_ends_us: list[float]

    @property
    def length_us(self) -> float:
        return self.end_us - self.start_us


def find_window(trace: Trace) -> Window:
    """Return the last steps of a trace, or its last seconds."""
    last, first = float(trace.end_us.max()), float(trace.start_us.min())
    for begins in _STEP:
        # A profiler that stops within a step writes its file there: that belongs to no step.
        ends = sorted(min(mark.end_us, last) for mark in trace.marks if mark.name.startswith(begins))
        if len(ends) >= 2 and ends[-1] > ends[0]:
            begin = ends[max(0, len(ends) - 1 - STEPS)]
            return Window(start_us=begin, end_us=ends[-1], step_ends_us=ends)
    return Window(start_us=max(first, last - LONGEST_US), end_us=last, step_ends_us=[])


def lanes_of(trace: Trace, window: Window) -> dict[Kind, list[Block]]:
    """Return the blocks of each kind within a window."""
    kinds = np.array([KINDS.index(function.kind) for function in trace.functions], np.int64)
    kind = kinds[trace.function]
    inside = (trace.end_us > window.start_us) & (trace.start_us < window.end_us)
    lanes: dict[Kind, list[Block]] = {}
    for number, name in enumerate(KINDS):
        mine = np.flatnonzero(inside & (kind == number))
        blocks = _innermost(trace, mine, window) if name == "python" else _blocks(trace, mine, window)
        lanes[name] = merge(blocks, window.length_us / _BINS)
    return lanes


def _blocks(trace: Trace, events: Ints, window: Window) -> list[Block]:
    """Return events as blocks, those that are too short to be seen put together."""
    starts = np.maximum(trace.start_us[events], window.start_us)
    ends = np.minimum(trace.end_us[events], window.end_us)
    bin_us = max(window.length_us / _BINS, 1e-9)
    is_small = ends - starts < bin_us
    blocks = [
        _block(trace, events[place : place + 1], (starts[place : place + 1], ends[place : place + 1]))
        for place in np.flatnonzero(~is_small).tolist()
    ]
    small = np.flatnonzero(is_small)
    bins = ((starts[small] - window.start_us) // bin_us).astype(np.int64)
    order = np.argsort(bins, kind="stable")
    firsts = np.flatnonzero(np.diff(bins[order], prepend=-1))
    for part in np.split(small[order], firsts[1:]) if len(small) else []:
        blocks.append(_block(trace, events[part], (starts[part], ends[part])))
    return sorted(blocks, key=lambda block: (block.start_us, -block.end_us))


def _block(trace: Trace, events: Ints, span: tuple[Floats, Floats]) -> Block:
    starts, ends = span
    functions, which = np.unique(trace.function[events], return_inverse=True)
    took = np.bincount(which, weights=ends - starts)
    names: dict[str, float] = {}
    for function, us in zip(functions.tolist(), took.tolist(), strict=True):
        name = trace.functions[function].name
        names[name] = names.get(name, 0.0) + us
    return Block(
        start_us=float(starts.min()), end_us=float(ends.max()), names=_most(names), count=len(events)
    )


def _innermost(trace: Trace, events: Ints, window: Window) -> list[Block]:
    """Return which Python function runs when: calls too short to be seen count as their caller's."""
    if not len(events):
        return []
    threads = trace.thread[events]
    own = np.bincount(threads, weights=np.maximum(0.0, own_us(trace)[events]))
    length = trace.end_us[events] - trace.start_us[events]
    mine = events[(threads == own.argmax()) & (length >= window.length_us / _FINEST)]
    mine = mine[np.lexsort((-trace.end_us[mine], trace.start_us[mine]))]
    names = [trace.functions[function].name for function in trace.function[mine].tolist()]
    cuts = _sweep(trace.start_us[mine].tolist(), trace.end_us[mine].tolist())
    blocks = []
    for start, end, place in cuts:
        low, high = max(start, window.start_us), min(end, window.end_us)
        if high > low:
            blocks.append(Block(start_us=low, end_us=high, names={names[place]: high - low}))
    return blocks


def _sweep(starts: Sequence[float], ends: Sequence[float]) -> list[tuple[float, float, int]]:
    """Return stretches of nested calls with the innermost of each; calls come by start, the longest first."""
    cuts: list[tuple[float, float, int]] = []
    open_: list[int] = []
    at = starts[0] if starts else 0.0
    for place, start in enumerate(starts):
        while open_ and ends[open_[-1]] <= start:
            cuts.append((at, ends[open_[-1]], open_[-1]))
            at = max(at, ends[open_.pop()])
        if open_:
            cuts.append((at, start, open_[-1]))
        at = max(at, start)
        open_.append(place)
    while open_:
        cuts.append((at, ends[open_[-1]], open_[-1]))
        at = max(at, ends[open_.pop()])
    return [cut for cut in cuts if cut[1] > cut[0]]


def merge(blocks: Sequence[Block], finest_us: float, most: int = MOST_BLOCKS) -> list[Block]:
    """Join neighbours, coarser and coarser, until there are few enough."""
    near_us = max(finest_us, 1e-9)
    merged = _merge_once(blocks, near_us)
    while len(merged) > most:
        near_us *= 1.5
        merged = _merge_once(merged, near_us)
    return merged


def _merge_once(blocks: Sequence[Block], near_us: float) -> list[Block]:
    """Join neighbours that are of one function, or both too short to be told apart."""
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if last is None or block.start_us - last.end_us > near_us or not _is_one(last, block, near_us):
            merged.append(msgspec.structs.replace(block))
            continue
        last.end_us = max(last.end_us, block.end_us)
        last.count += block.count
        names = {name: last.names.get(name, 0.0) + us for name, us in block.names.items()}
        last.names = _most({**last.names, **names})
    return merged


def _is_one(last: Block, block: Block, near_us: float) -> bool:
    if last.name == block.name:
        return True
    return block.end_us - block.start_us < near_us and last.end_us - last.start_us < near_us


def _most(names: dict[str, float], most: int = 8) -> dict[str, float]:
    """Keep the longest only: a block that holds thousands of events is told by a few names."""
    if len(names) <= most:
        return names
    return {name: names[name] for name in sorted(names, key=lambda name: -names[name])[:most]}
