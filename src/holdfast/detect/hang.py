"""Who stands still, and who only waits for one who does: from what is seen of a node's workers.

Guilty is who computes beyond its time-out, who does not take an input that has been made, and who is stopped
by a signal while others run. All others that wait are victims. Where somebody else may be to blame, on
another node or out of sight, nobody is named.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.telemetry import Phase, Status

Makers = Mapping[tuple[int, int], tuple[int, int]]
"""Of one schedule: for the place and index of an operation, those of the one that makes its input."""

HISTORY = 20
"""Step durations that count."""
_LEAST_STEPS = 3
_LEAST_TIMEOUT_S = 2.0
_LEAST_STOP_S = 0.2
_FIRST_STOP_S = 5.0
STOPPED = "T"
"""The kernel's letter for a process stopped by a signal; ``t`` is one that a debugger holds."""
TRACED = "t"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker may stand still."""

    timeout_s: float | None = None
    """In one place of its schedule; None: for ever."""
    stop_s: float = _FIRST_STOP_S
    """In state T."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of one living worker."""

    status: Status
    stage: int
    state: str
    """The kernel's letter for what the process does."""
    waited_s: float = 0.0
    """How long it has been in the same generation, step, op and phase."""
    stopped_s: float = 0.0
    """How long it has been in state T."""
    limits: Limits = Limits()


class Hung(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is guilty."""

    rank: int
    waited_s: float
    evidence: str


def limits_of(durations_s: Sequence[float]) -> Limits:
    """Return what the last steps of a worker say about how long it may stand still."""
    last = durations_s[-HISTORY:]
    if len(last) < _LEAST_STEPS:
        return Limits()
    return Limits(
        timeout_s=max(_LEAST_TIMEOUT_S, 3 * max(last) + 1),
        stop_s=max(_LEAST_STOP_S, statistics.median(last)),
    )


def find_hung(seen: Sequence[Seen], makers: Mapping[int, Makers]) -> list[Hung]:
    """Return the guilty ones by rank; ``makers`` are those of each generation whose schedule is known."""
    return _leave_one(_judge(seen, makers), {worker.status.rank: worker for worker in seen})


def find_suspects(seen: Sequence[Seen], makers: Mapping[int, Makers]) -> set[int]:
    """Return the ranks that are beyond half a time-out, and will be guilty if nothing changes."""
    sooner = [_with_half_a_timeout(worker) for worker in seen]
    return {hung.rank for hung in _judge(sooner, makers)}


def _with_half_a_timeout(worker: Seen) -> Seen:
    limits = worker.limits
    if limits.timeout_s is None:
        return worker
    half = Limits(timeout_s=limits.timeout_s / 2, stop_s=limits.stop_s)
    return msgspec.structs.replace(worker, limits=half)


def _judge(seen: Sequence[Seen], makers: Mapping[int, Makers]) -> list[Hung]:
    if all(worker.state == STOPPED for worker in seen):  # Somebody suspended the job.
        return []
    ranks = {worker.status.rank: worker for worker in seen}
    seats = {worker.status.seat: worker for worker in seen}
    found = {rank: hung for rank in sorted(ranks) if (hung := _judge_alone(ranks[rank]))}
    stuck = [
        hung
        for rank in sorted(ranks)
        if rank not in found and (hung := _judge_receiver(ranks[rank], seats, found, makers))
    ]
    return [*found.values(), *stuck]


def _judge_alone(worker: Seen) -> Hung | None:
    """Judge a worker by what it does, whatever the others do."""
    rank, limits = worker.status.rank, worker.limits
    if worker.state == STOPPED and worker.stopped_s > limits.stop_s:
        evidence = f"stopped by a signal for {worker.stopped_s:.2f} s while others run"
        return Hung(rank=rank, waited_s=worker.stopped_s, evidence=evidence)
    if worker.status.phase == Phase.COMPUTE and _is_over(worker, worker.waited_s):
        evidence = f"computes for {worker.waited_s:.2f} s, expected at most {limits.timeout_s:.2f} s"
        return Hung(rank=rank, waited_s=worker.waited_s, evidence=evidence)
    return None


def _judge_receiver(
    worker: Seen, seats: Mapping[int, Seen], blamed: Collection[int], makers: Mapping[int, Makers]
) -> Hung | None:
    """Judge a worker that waits by what the maker of its input has done."""
    status = worker.status
    if status.phase != Phase.RECEIVE:
        return None
    seat, index = makers.get(status.generation, {}).get((status.seat, status.op), (-1, -1))
    maker = seats.get(seat)
    # What a worker that stands still has made may never have left it.
    if maker is None or maker.status.rank in blamed or maker.state in (STOPPED, TRACED):
        return None
    # The maker has been where it is for that long, so what lies behind it is at least as old. To count from
    # the receiver's own start would blame it for a maker that was slow.
    ready_s = min(worker.waited_s, maker.waited_s)
    if not (_has_passed(maker.status, index, status) and _is_over(worker, ready_s)):
        return None
    evidence = f"does not take the input that rank {maker.status.rank} made at least {ready_s:.2f} s ago"
    return Hung(rank=status.rank, waited_s=worker.waited_s, evidence=evidence)


def _is_over(worker: Seen, waited_s: float) -> bool:
    timeout_s = worker.limits.timeout_s
    return timeout_s is not None and waited_s > timeout_s and worker.state != TRACED


def _has_passed(maker: Status, index: int, receiver: Status) -> bool:
    """Say whether a worker is past an operation of the step that the other is in."""
    if maker.generation != receiver.generation or maker.phase == Phase.REGROUP:
        return False
    if maker.step != receiver.step:
        return maker.step > receiver.step
    # A stage reduces its gradients after the last of its operations.
    return maker.op > index or maker.phase == Phase.REDUCE


def _leave_one(found: Sequence[Hung], ranks: Mapping[int, Seen]) -> list[Hung]:
    """Spare all but one of a stage of which nobody would be left, as far as can be seen."""
    alive = Counter(worker.stage for worker in ranks.values())
    stages: dict[int, list[Hung]] = {}
    for hung in sorted(found, key=lambda hung: (-hung.waited_s, hung.rank)):
        stages.setdefault(ranks[hung.rank].stage, []).append(hung)
    kept = [
        hung
        for stage, of_stage in stages.items()
        for hung in (of_stage[:1] if len(of_stage) == alive[stage] else of_stage)
    ]
    return sorted(kept, key=lambda hung: hung.rank)
