"""What changed between two schedules of the same job: who does which micro-batch, and in which order.

Both are taken to be valid: every micro-batch at every stage has one forward, and the worker that does it does
the rest of it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from holdfast.errors import InputError
from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Worker

MAX_LINES = 16


class Rerouted(msgspec.Struct, frozen=True, kw_only=True):
    """A micro-batch that another worker does at one stage."""

    pipeline: int
    microbatch: int
    before: Worker
    after: Worker


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How a schedule differs from another; equal schedules have nothing in it."""

    rerouted: tuple[Rerouted, ...]
    """By stage and then by the workers that lost and got them."""
    reordered: tuple[Worker, ...]
    """Workers with the same micro-batches as before, but other operations or another order of them."""

    def __str__(self) -> str:
        lines = say_rerouted(self.rerouted)
        if self.reordered:
            lines.append(f"another order on {_list([str(worker) for worker in self.reordered])}")
        return "\n".join(lines or ["no difference"]) + "\n"


def compare(before: Schedule, after: Schedule) -> Difference:
    """Return what is different in ``after``."""
    for name in ("dp", "pp", "microbatches"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            raise InputError(f"the schedules have {name} {old} and {new}, expected two of the same job")
    old_doers, new_doers = _doers(before), _doers(after)
    missing = sorted(old_doers.keys() ^ new_doers.keys())
    if missing:
        raise InputError(f"{missing[0]} is in one schedule only, expected the same work in both")
    rerouted = [
        Rerouted(pipeline=op.pipeline, microbatch=op.microbatch, before=old_doers[op], after=worker)
        for op, worker in new_doers.items()
        if old_doers[op] != worker
    ]
    return Difference(rerouted=_sort(rerouted), reordered=_reordered(before, after, rerouted))


def rerouted_of(schedule: Schedule) -> tuple[Rerouted, ...]:
    """Return the micro-batches that are not done by the worker of their own pipeline."""
    return _sort(
        Rerouted(
            pipeline=op.pipeline,
            microbatch=op.microbatch,
            before=Worker(op.pipeline, op.stage),
            after=worker,
        )
        for op, worker in _doers(schedule).items()
        if op.pipeline != worker.pipeline
    )


def say_rerouted(rerouted: Sequence[Rerouted], most: int = MAX_LINES) -> list[str]:
    """Return a line for each worker that lost micro-batches to another; one for each loser where many did."""
    groups = groupby(rerouted, key=lambda each: (each.before, each.after))
    lines = [f"{before} to {after}: {_name(list(group))}" for (before, after), group in groups]
    return lines if len(lines) <= most else list(_say_losers(rerouted))


def _say_losers(rerouted: Sequence[Rerouted]) -> Iterator[str]:
    for before, group in groupby(rerouted, key=lambda each: each.before):
        theirs = list(group)
        takers = len({each.after for each in theirs})
        yield f"{before}: {len(theirs)} to {takers} other{'s' * (takers > 1)}"


def _name(rerouted: Sequence[Rerouted]) -> str:
    """List micro-batches; the pipeline is named where it is not the one of the worker that lost them."""
    homes = ["" if each.pipeline == each.before.pipeline else f"{each.pipeline}." for each in rerouted]
    return _list([f"{home}{each.microbatch}" for home, each in zip(homes, rerouted, strict=True)])


def _doers(schedule: Schedule) -> dict[Op, Worker]:
    """Return who does each forward, and with it the rest of that micro-batch at that stage."""
    return {
        op: worker
        for worker, order in zip(schedule.workers, schedule.orders, strict=True)
        for op in order
        if op.kind == "F"
    }


def _reordered(before: Schedule, after: Schedule, rerouted: list[Rerouted]) -> tuple[Worker, ...]:
    touched = {worker for each in rerouted for worker in (each.before, each.after)}
    return tuple(
        worker
        for worker in before.workers
        if worker not in touched and before.order(worker) != after.order(worker)
    )


def _sort(rerouted: Iterable[Rerouted]) -> tuple[Rerouted, ...]:
    return tuple(
        sorted(
            rerouted,
            key=lambda each: (each.before.stage, each.before, each.after, each.pipeline, each.microbatch),
        )
    )


def _list(words: list[str]) -> str:
    """Join words; of many, only the first are named."""
    return " ".join(words) if len(words) <= 12 else f"{' '.join(words[:10])} and {len(words) - 10} more"
