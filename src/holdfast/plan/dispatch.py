"""A list scheduler: whenever a worker is free it starts, by the rules of a policy, what is ready.

Ops are numbers here, not values: a plan for 1,536 workers has 300,000 of them, and the search calls this many
times. A micro-batch is ``q = pipeline * microbatches + index``, a worker ``w = pipeline * pp + stage``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable

import msgspec

from holdfast.plan.problem import Problem

FORWARD, INPUT, WEIGHT = 0, 1, 2
_ACTIVATION_THERE, _GRADIENT_THERE = 3, 4


Placed = tuple[int, int, int, float, float]
"""One operation with its place in time: worker, kind, micro-batch, start, end. Kind is FORWARD, INPUT (in a
coupled run: the whole backward) or WEIGHT. A plain tuple: millions are made."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a free worker chooses; one value per stage, and a rank per micro-batch: smaller goes first."""

    depth: tuple[int, ...]
    """Micro-batches a worker may hold, at most the memory cap."""
    backlog: tuple[float, ...]
    """Weight gradients that may wait while forwards are left; more are worked off before the next forward."""
    input_before_weight: tuple[bool, ...]
    """When memory is full: pass gradients on first, or make room first."""
    forward_first: tuple[bool, ...]
    """Start a forward rather than a backward when both are ready."""
    loyalty: float
    """How many places earlier another pipeline's micro-batch must rank to be taken before one's own."""
    forward_rank: tuple[float, ...]
    input_rank: tuple[float, ...]


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs for one problem and one way of routing share."""

    problem: Problem
    durations: tuple[tuple[float, ...], ...]
    """Per worker; none for a dead one."""
    queues: tuple[tuple[int, ...], ...]
    """``queues[stage][q]``: in whose pipeline's queue a micro-batch waits for its forward."""
    limits: tuple[int, ...]
    """Per worker, how many micro-batches it may take."""
    lends: tuple[int, ...]
    """Per worker, how many of its queue others may take."""
    borrows: tuple[int, ...]
    """Per worker, how many it may take from the queues of others."""
    is_coupled: bool = False
    """Backward is one operation, and holds its gradient back until its end."""


class _State:
    """What changes during a run: plain lists, indexed by worker or stage."""

    def __init__(self, floor: Floor) -> None:
        problem, workers = floor.problem, range(len(floor.durations))
        self.placed: list[Placed] = []
        self.events: list[tuple[float, int, int, int]] = []
        """Heap of (when, kind, worker, micro-batch): an end, or an arrival at a worker's queue."""
        self.is_free = [bool(durations) for durations in floor.durations]
        self.held = [0 for _ in workers]
        self.left = list(floor.limits)
        self.lends = list(floor.lends)
        self.borrows = list(floor.borrows)
        self.activations: list[list[tuple[float, int]]] = [[] for _ in workers]
        self.gradients: list[list[tuple[float, int]]] = [[] for _ in workers]
        self.weights: list[deque[int]] = [deque() for _ in workers]
        self.taken_by = [[0] * len(floor.queues[0]) for _ in range(problem.pp)]
        self.hungry: list[dict[int, None]] = [
            {
                worker: None
                for worker in workers[stage :: problem.pp]
                if self.is_free[worker] and floor.borrows[worker]
            }
            for stage in range(problem.pp)
        ]
        """Per stage, free workers that found nothing to do and may take from others; a set with an order."""


def dispatch(floor: Floor, policy: Policy) -> list[Placed]:  # noqa: PLR0912  One hot loop, once per operation.
    """Return all operations in the order in which they start."""
    state = _State(floor)
    pp, comm, last = floor.problem.pp, floor.problem.comm, floor.problem.pp - 1
    pop, push, events = heapq.heappop, heapq.heappush, state.events
    is_free, held, weights, taken_by = state.is_free, state.held, state.weights, state.taken_by
    queues, is_coupled = floor.queues, floor.is_coupled
    for q, pipeline in enumerate(queues[0]):
        push(state.activations[pipeline * pp], (policy.forward_rank[q], q))
    arrive, start_next = _arriver(policy, state, pp), _starter(floor, policy, state)
    now, awake = 0.0, list(range(0, len(is_free), pp))
    while True:
        for worker in awake:
            if is_free[worker]:
                start_next(worker, now)
        if not events:
            return state.placed
        now, awake = events[0][0], []
        while events and events[0][0] == now:
            _, kind, worker, q = pop(events)
            if kind >= _ACTIVATION_THERE:
                arrive(kind, worker, q, awake)
                continue
            is_free[worker] = True
            awake.append(worker)
            stage = worker % pp
            if kind == FORWARD:
                if stage == last:
                    arrive(_GRADIENT_THERE, worker, q, awake)
                    continue
                target, kind = queues[stage + 1][q] * pp + stage + 1, _ACTIVATION_THERE
            else:
                if kind == WEIGHT or is_coupled:
                    held[worker] -= 1
                else:
                    weights[worker].append(q)
                if kind == WEIGHT or not stage:
                    continue
                target, kind = taken_by[stage - 1][q], _GRADIENT_THERE
            if comm:
                push(events, (now + comm, kind, target, q))
            else:
                arrive(kind, target, q, awake)


def _arriver(policy: Policy, state: _State, pp: int) -> Callable[[int, int, int, list[int]], None]:
    """Return what puts an arrival into its queue and wakes who may want it."""
    push, hungry = heapq.heappush, state.hungry
    activations, gradients = state.activations, state.gradients
    forward_rank, input_rank = policy.forward_rank, policy.input_rank

    def arrive(kind: int, worker: int, q: int, awake: list[int]) -> None:
        awake.append(worker)
        if kind == _GRADIENT_THERE:
            push(gradients[worker], (input_rank[q], q))
            return
        push(activations[worker], (forward_rank[q], q))
        # Its own worker is asked first; it may be busy, full, at its limit, or have something better to do.
        awake.extend(hungry[worker % pp])

    return arrive


def _starter(floor: Floor, policy: Policy, state: _State) -> Callable[[int, float], None]:
    """Return what makes a free worker start its next operation, or go hungry."""
    push, pop, place = heapq.heappush, heapq.heappop, state.placed.append
    pp, durations, queues = floor.problem.pp, floor.durations, floor.queues
    held, left, gradients, weights = state.held, state.left, state.gradients, state.weights
    lends, borrows, is_free, hungry = state.lends, state.borrows, state.is_free, state.hungry
    depth, backlog, taken_by, events = policy.depth, policy.backlog, state.taken_by, state.events
    input_before_weight, forward_first = policy.input_before_weight, policy.forward_first
    source_of, activations = _source_finder(floor, policy, state), state.activations

    def start_next(worker: int, now: float) -> None:
        stage = worker % pp
        is_full = held[worker] >= depth[stage]
        source = None
        if not is_full and left[worker]:
            source = source_of(worker, stage) if borrows[worker] else activations[worker]
        waiting, ready = len(weights[worker]), gradients[worker]
        if waiting and is_full and left[worker] and not (ready and input_before_weight[stage]):
            kind = WEIGHT
        elif ready and not (source and forward_first[stage]):
            kind = INPUT
        elif waiting and left[worker] and waiting > backlog[stage]:
            kind = WEIGHT
        elif source:
            kind = FORWARD
        elif waiting:
            kind = WEIGHT
        else:
            if borrows[worker]:
                hungry[stage][worker] = None
            return
        hungry[stage].pop(worker, None)
        is_free[worker] = False
        if kind == FORWARD and source:
            q = pop(source)[1]
            owner = queues[stage][q] * pp + stage
            if owner != worker:
                lends[owner] -= 1
                borrows[worker] -= 1
            left[worker] -= 1
            held[worker] += 1
            taken_by[stage][q] = worker
        else:
            q = pop(ready)[1] if kind == INPUT else weights[worker].popleft()
        end = now + durations[worker][kind]
        place((worker, kind, q, now, end))
        push(events, (end, kind, worker, q))

    return start_next


def _source_finder(
    floor: Floor, policy: Policy, state: _State
) -> Callable[[int, int], list[tuple[float, int]]]:
    """Return what finds the queue from which a worker takes its next forward: its own, or one that lends."""
    pp, activations, lends, loyalty = floor.problem.pp, state.activations, state.lends, policy.loyalty
    lenders = [[worker for worker in range(stage, len(lends), pp) if lends[worker]] for stage in range(pp)]

    def source_of(worker: int, stage: int) -> list[tuple[float, int]]:
        source = activations[worker]
        best = source[0][0] - loyalty if source else math.inf
        for lender in lenders[stage]:
            queue = activations[lender]
            if queue and queue[0][0] < best and lends[lender]:
                source, best = queue, queue[0][0]
        return source

    return source_of
