"""A list scheduler: whenever a worker is free it starts, by the rules of a policy, what is ready.

Ops are numbers here, not values: a plan for 1,536 workers has 300,000 of them, and the search calls this many
times. A micro-batch is ``q = pipeline * microbatches + index``, a worker ``w = pipeline * pp + stage``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import msgspec

from holdfast.plan.problem import Problem

FORWARD, INPUT, WEIGHT = 0, 1, 2
_ACTIVATION_THERE, _GRADIENT_THERE = 3, 4
_NOBODY = -1


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
    loyalty: tuple[float, ...]
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
    is_open: bool
    """A worker may take from the queues of its peers; else only from its own."""
    is_coupled: bool = False
    """Backward is one operation, and holds its gradient back until its end."""


Ranked = list[tuple[float, int]]
"""A heap of micro-batches by rank."""


class _State:
    """What changes during a run: plain lists, indexed by worker or stage."""

    def __init__(self, floor: Floor) -> None:
        pp, workers = floor.problem.pp, range(len(floor.durations))
        self.placed: list[Placed] = []
        self.events: list[tuple[float, int, int, int]] = []
        """Heap of (when, kind, worker, micro-batch): an end, or an arrival at a worker's queue."""
        self.is_free = [bool(durations) for durations in floor.durations]
        self.held = [0 for _ in workers]
        self.left = list(floor.limits)
        self.activations: list[Ranked] = [[] for _ in workers]
        self.pools: list[Ranked] = [[] for _ in range(pp)]
        """Per stage, what waits in all its queues; taken micro-batches are dropped when they come up."""
        self.gradients: list[Ranked] = [[] for _ in workers]
        self.weights: list[deque[int]] = [deque() for _ in workers]
        self.taken_by = [[_NOBODY] * len(floor.queues[0]) for _ in range(pp)]
        self.hungry: list[dict[int, None]] = [
            {worker: None for worker in workers[stage::pp] if self.is_free[worker] and self.left[worker]}
            for stage in range(pp)
        ]
        """Per stage, free workers that would take a forward if there were one; a set with an order."""


def dispatch(floor: Floor, policy: Policy) -> list[Placed]:  # noqa: PLR0912  One hot loop, once per operation.
    """Return all operations in the order in which they start."""
    state = _State(floor)
    pp, comm, last = floor.problem.pp, floor.problem.comm, floor.problem.pp - 1
    pop, push, events = heapq.heappop, heapq.heappush, state.events
    is_free, held, weights, taken_by = state.is_free, state.held, state.weights, state.taken_by
    queues, is_coupled = floor.queues, floor.is_coupled
    awake: list[int] = []
    helpers: list[int] = []
    arrive, start_next = _arriver(floor, policy, state), _starter(floor, policy, state)
    for q, pipeline in enumerate(queues[0]):
        arrive(_ACTIVATION_THERE, pipeline * pp, q, awake, helpers)
    now = 0.0
    while True:
        for worker in awake + helpers:  # Helpers last: a worker comes before them at its own queue.
            if is_free[worker]:
                start_next(worker, now)
        if not events:
            assert len(state.placed) == len(queues[0]) * pp * (2 if is_coupled else 3), "work was left undone"
            return state.placed
        now, awake, helpers = events[0][0], [], []
        while events and events[0][0] == now:
            _, kind, worker, q = pop(events)
            if kind >= _ACTIVATION_THERE:
                arrive(kind, worker, q, awake, helpers)
                continue
            is_free[worker] = True
            awake.append(worker)
            stage = worker % pp
            if kind == FORWARD:
                is_last = stage == last
                target = worker if is_last else queues[stage + 1][q] * pp + stage + 1
                kind = _GRADIENT_THERE if is_last else _ACTIVATION_THERE
            else:
                if kind == WEIGHT or is_coupled:
                    held[worker] -= 1
                else:
                    weights[worker].append(q)
                if kind == WEIGHT or not stage:
                    continue
                target, kind = taken_by[stage - 1][q], _GRADIENT_THERE
            if comm and target != worker:
                push(events, (now + comm, kind, target, q))
            else:
                arrive(kind, target, q, awake, helpers)


Arrive = Callable[[int, int, int, list[int], list[int]], None]


def _arriver(floor: Floor, policy: Policy, state: _State) -> Arrive:
    """Return what puts an arrival into its queue and wakes who may want it."""
    push, hungry, pp, is_open = heapq.heappush, state.hungry, floor.problem.pp, floor.is_open
    activations, gradients, pools = state.activations, state.gradients, state.pools
    forward_rank, input_rank = policy.forward_rank, policy.input_rank

    def arrive(kind: int, worker: int, q: int, awake: list[int], helpers: list[int]) -> None:
        if kind == _GRADIENT_THERE:
            push(gradients[worker], (input_rank[q], q))
            awake.append(worker)
            return
        ranked = (forward_rank[q], q)
        push(activations[worker], ranked)
        starving = hungry[worker % pp]
        if worker in starving:
            del starving[worker]
            awake.append(worker)
        elif is_open and starving:
            helper = next(iter(starving))
            del starving[helper]
            helpers.append(helper)
        if is_open:
            push(pools[worker % pp], ranked)

    return arrive


def _starter(floor: Floor, policy: Policy, state: _State) -> Callable[[int, float], None]:
    """Return what makes a free worker start its next operation, or go hungry."""
    push, pop, place = heapq.heappush, heapq.heappop, state.placed.append
    pp, durations, events, is_free = floor.problem.pp, floor.durations, state.events, state.is_free
    held, left, gradients, weights = state.held, state.left, state.gradients, state.weights
    depth, backlog, taken_by, hungry = policy.depth, policy.backlog, state.taken_by, state.hungry
    input_before_weight, forward_first = policy.input_before_weight, policy.forward_first
    source_of = _source_finder(floor, policy, state)

    def start_next(worker: int, now: float) -> None:
        stage = worker % pp
        has_room = held[worker] < depth[stage]
        source = source_of(worker, stage) if has_room and left[worker] else None
        waiting, ready = len(weights[worker]), gradients[worker]
        if waiting and not has_room and left[worker] and not (ready and input_before_weight[stage]):
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
            if has_room and left[worker]:
                hungry[stage][worker] = None
            return
        hungry[stage].pop(worker, None)
        is_free[worker] = False
        if kind == FORWARD and source:
            q = pop(source)[1]
            left[worker] -= 1
            held[worker] += 1
            taken_by[stage][q] = worker
        else:
            q = pop(ready)[1] if kind == INPUT else weights[worker].popleft()
        end = now + durations[worker][kind]
        place((worker, kind, q, now, end))
        push(events, (end, kind, worker, q))

    return start_next


def _source_finder(floor: Floor, policy: Policy, state: _State) -> Callable[[int, int], Ranked]:
    """Return what finds the heap from which a worker takes its next forward: its own, or everybody's."""
    pop, activations, pools, taken_by = heapq.heappop, state.activations, state.pools, state.taken_by
    is_open, loyalty = floor.is_open, policy.loyalty

    def source_of(worker: int, stage: int) -> Ranked:
        own, taken = activations[worker], taken_by[stage]
        while own and taken[own[0][1]] != _NOBODY:
            pop(own)
        if not is_open:
            return own
        pool = pools[stage]
        while pool and taken[pool[0][1]] != _NOBODY:
            pop(pool)
        return pool if pool and (not own or pool[0][0] < own[0][0] - loyalty[stage]) else own

    return source_of
