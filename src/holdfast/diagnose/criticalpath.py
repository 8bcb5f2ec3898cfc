"""Which functions a step's time went to: EROICA's priority critical path.

A function counts while it runs and nothing of a higher kind does: compute before memory before collectives
before Python. Of Python only the innermost function counts, and only in the thread that trains. Several
functions of one kind that run at the same time all count in full, so shares may add up to more than one. Of
operations that call each other in one thread, as those of a CPU do, only the innermost counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.diagnose.nesting import Stretches, own_stretches
from holdfast.observe.kineto import KINDS, Floats, Function, Ints, Trace

_PYTHON = len(KINDS)
"""Place of Python in the order; one before it is that of its garbage collector."""
COLLECTOR = "Python GC"
_LAST_OP = KINDS.index("memory")
_SPAWNED = "threading.py("
"""In the name of the function that every such thread begins with."""
Mask = npt.NDArray[np.bool_]


class Union:
    """Stretches of time put together, such that none overlaps another."""

    def __init__(self, starts: Floats, ends: Floats) -> None:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order]) if len(order) else ends
        is_first = np.ones(len(starts), bool)
        is_first[1:] = starts[1:] > ends[:-1]
        firsts = np.flatnonzero(is_first)
        self._starts = starts[firsts]
        self._ends = ends[np.append(firsts[1:] - 1, len(ends) - 1)] if len(firsts) else ends
        self._before = np.concatenate([[0.0], np.cumsum(self._ends - self._starts)])

    def covered(self, until: Floats) -> Floats:
        """Return how much of the time up to each moment is covered."""
        if not len(self._starts):
            return np.zeros_like(until)
        at = np.searchsorted(self._starts, until, side="right")
        last = np.maximum(at - 1, 0)
        inside = np.minimum(until, self._ends[last]) - self._starts[last]
        return np.where(at == 0, 0.0, self._before[last] + inside)


def own_us(trace: Trace) -> Floats:
    """Return for each event how long it is on the critical path."""
    kinds = np.array([_order(function) for function in trace.functions], np.int64)
    kind = kinds[trace.function] if len(trace.function) else np.zeros(0, np.int64)
    pieces = _pieces(trace, kind)
    piece_kind = kind[pieces.owner]
    own = np.zeros(len(kind))
    for number in range(_PYTHON + 1):
        higher = Union(pieces.start[piece_kind < number], pieces.end[piece_kind < number])
        mine = np.flatnonzero(piece_kind == number)
        starts, ends = pieces.start[mine], pieces.end[mine]
        free = ends - starts - (higher.covered(ends) - higher.covered(starts))
        own += np.bincount(pieces.owner[mine], weights=free, minlength=len(own))
    return np.maximum(0.0, _innermost(trace, own, kind))


def _pieces(trace: Trace, kind: Ints) -> Stretches:
    """Return events as they are, but operations of compute and memory without those within them."""
    is_op = kind <= _LAST_OP
    ops, others = np.flatnonzero(is_op), np.flatnonzero(~is_op)
    mine = own_stretches(trace.start_us[ops], trace.end_us[ops], trace.thread[ops])
    return Stretches(
        np.concatenate([ops[mine.owner], others]),
        np.concatenate([mine.start, trace.start_us[others]]),
        np.concatenate([mine.end, trace.end_us[others]]),
    )


def _order(function: Function) -> int:
    """Return the place of a function: before Python comes its garbage collector, which stops all of it."""
    if function.kind != "python":
        return KINDS.index(function.kind)
    return _PYTHON - 1 if function.name == COLLECTOR else _PYTHON


def _innermost(trace: Trace, free_us: Floats, kind: Ints) -> Floats:
    """Take from every Python function what it called, and from other threads everything."""
    own = free_us.copy()
    called = np.flatnonzero(trace.caller >= 0)
    np.subtract.at(own, trace.caller[called], free_us[called])
    is_python = kind == _PYTHON
    if is_python.any():
        mine = np.maximum(0.0, own) * ~_is_spawned(trace)[trace.function]
        if not mine[is_python].any():  # All of it runs below a thread that somebody started.
            mine = np.maximum(0.0, own)
        busiest = np.bincount(trace.thread[is_python], weights=mine[is_python]).argmax()
        own[is_python & (trace.thread != busiest)] = 0.0
    return own


def _is_spawned(trace: Trace) -> Mask:
    """Say which functions run in a thread that Python has started, and not in the one that trains."""
    found = np.zeros(len(trace.functions), bool)
    for number, function in enumerate(trace.functions):
        # Whoever calls comes first.
        found[number] = _SPAWNED in function.name or (function.caller >= 0 and found[function.caller])
    return found


def shares(trace: Trace) -> Floats:
    """Return beta of each function: the share of the trace that it is on the critical path."""
    span = span_us(trace)
    if span <= 0:
        return np.zeros(len(trace.functions))
    return np.bincount(trace.function, weights=own_us(trace), minlength=len(trace.functions)) / span


def span_us(trace: Trace) -> float:
    """Return how long the trace is."""
    return float(trace.end_us.max() - trace.start_us.min()) if len(trace.start_us) else 0.0
