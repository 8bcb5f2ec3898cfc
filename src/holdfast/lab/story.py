"""What a pipeline job went through, in figures: pure functions of its steps, its event log and its output."""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from holdfast.membership import Needs
from holdfast.plan.choose import choose
from holdfast.plan.problem import Problem, Worker, make_speeds
from holdfast.plan.timing import time_schedule
from holdfast.telemetry import Step
from holdfast.values import (
    AnyEvent,
    Applied,
    Death,
    IncidentClosed,
    JobSlowed,
    Record,
    SuspectsNamed,
    WorkerDied,
)

_WARM_UP = 3
"""First steps that are not typical: memory is being allocated, connections are being made."""
_LOSS = re.compile(r"step (\d+) loss (\S+)")
_DIGEST = re.compile(r"rank \d+ digest ([0-9a-f]{64})")

# --- time -------------------------------------------------------------------------------------


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """A death, and how the others went on; times are of the node's monotonic clock."""

    rank: int
    worker: str
    died_s: float
    """Its last sign of life within the step that its death cut short."""
    resumed_s: float
    """The end of that step, done by those who were left."""
    pause_s: float
    """How much longer that step took than those after it: the seconds lost."""


class Slowness(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was slow for a while, and what was done about it."""

    ranks: list[int]
    """Who was named."""
    since_step: int
    slow_s: float | None
    """Median step time until something was done."""
    around_s: float | None
    """And from then on, until it was taken back."""
    pause_s: float
    """What it cost to do it."""
    lost_s: float
    """The bill, pauses included."""
    spared_s: float
    """What it would have cost more, had nothing been done."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run."""

    before_s: float | None
    """Median step time before anything happened; None where there were too few steps."""
    after_s: float | None
    """And after the last one."""
    recoveries: list[Recovery]
    planned_ratio: float
    """Planned step time with the dead over planned step time with everybody."""
    slowness: Slowness | None = None
    """Once it is over."""

    @property
    def ratio(self) -> float | None:
        """How many times longer a step took at the end than at the beginning."""
        return self.after_s / self.before_s if self.before_s and self.after_s else None


def tell(steps: Sequence[Step], records: Sequence[Record], needs: Needs) -> Story:
    """Reduce the steps and events of one node to its figures, as the first rank that lived saw them."""
    deaths = [record.event.death for record in records if isinstance(record.event, WorkerDied)]
    seen = witnessed(steps, {death.rank for death in deaths})
    cuts = [(death, cut) for death in deaths if (cut := _cut_short(steps, seen, death)) is not None]
    ends_s = [cut.ended_s for _, cut in cuts]
    slow_from = min(
        (each.event.change.step for each in records if isinstance(each.event, JobSlowed)), default=None
    )
    before = [
        step
        for step in seen
        if step.ended_s < min(ends_s, default=float("inf")) and (slow_from is None or step.step < slow_from)
    ]
    after = [step for step in seen if step.ended_s > max(ends_s)] if ends_s else []
    after_s = _median(after)
    return Story(
        before_s=_median(before[_WARM_UP:]),
        after_s=after_s,
        recoveries=[_recovery(steps, death, cut, after_s, needs.pp) for death, cut in cuts],
        planned_ratio=plan_ratio(needs, [death.rank for death in deaths]),
        slowness=_slowness(seen, [record.event for record in records]),
    )


def _slowness(seen: Sequence[Step], events: Sequence[AnyEvent]) -> Slowness | None:
    """Reduce the first slowdown that somebody was named for, and that is over, to its figures."""
    named = next(
        (e for e in events if isinstance(e, SuspectsNamed) and e.since_step > 0 and e.suspects), None
    )
    closed = next((e for e in events if isinstance(e, IncidentClosed)), None)
    done = [e for e in events if isinstance(e, Applied)]
    if named is None or closed is None or not done:
        return None
    first, last = done[0].version, done[-1].version
    # Steps of which a part was made in another way belong to neither.
    around = [step for step in seen if first + 1 < step.step < last]
    slow_s = _median([step for step in seen if named.since_step < step.step < first])
    around_s = _median(around)
    spared_s = (
        len(around) * max(0.0, slow_s - around_s) if slow_s is not None and around_s is not None else 0.0
    )
    return Slowness(
        ranks=named.suspects[0].ranks,
        since_step=named.since_step,
        slow_s=slow_s,
        around_s=around_s,
        pause_s=done[0].pause_s,
        lost_s=closed.lost_s,
        spared_s=spared_s,
    )


def witnessed(steps: Sequence[Step], dead: Iterable[int]) -> list[Step]:
    """Return the steps of the first rank that did not die, in order."""
    lived = {step.rank for step in steps} - set(dead)
    return sorted(
        (step for step in steps if lived and step.rank == min(lived) and step.duration_s > 0),
        key=lambda step: step.ended_s,
    )


def plan_ratio(needs: Needs, dead: Sequence[int]) -> float:
    """Return how many times longer the planner says that a step takes without the dead."""
    workers = tuple(Worker(*divmod(rank, needs.pp)) for rank in sorted(dead))
    return _period(needs, workers) / _period(needs, ())


@functools.cache
def _period(needs: Needs, dead: tuple[Worker, ...]) -> float:
    problem = Problem(
        dp=needs.dp,
        pp=needs.pp,
        microbatches=needs.microbatches,
        speeds=make_speeds(needs.dp, needs.pp, dict.fromkeys(dead, 0.0)),
    )
    return time_schedule(problem, choose(problem, fault_free=needs.fault_free)).period


def _cut_short(steps: Sequence[Step], seen: Sequence[Step], death: Death) -> Step | None:
    """Return the witness's step that the death fell into, None if no step followed.

    The launcher sees a death late, by up to a few steps; among those from the last sign of life until then,
    it is the longest.
    """
    last_s = _last_sign_s(steps, death)
    meant = [step for step in seen if step.ended_s > last_s and step.ended_s - step.duration_s < death.seen_s]
    return max(meant, key=lambda step: step.duration_s, default=None)


def _recovery(steps: Sequence[Step], death: Death, cut: Step, after_s: float | None, pp: int) -> Recovery:
    return Recovery(
        rank=death.rank,
        worker=str(Worker(*divmod(death.rank, pp))),
        died_s=max(_last_sign_s(steps, death), cut.ended_s - cut.duration_s),
        resumed_s=cut.ended_s,
        pause_s=max(0.0, cut.duration_s - (after_s or 0.0)),
    )


def _last_sign_s(steps: Sequence[Step], death: Death) -> float:
    own_s = [step.ended_s for step in steps if step.rank == death.rank and step.ended_s <= death.seen_s]
    return max(own_s, default=death.seen_s)


def _median(steps: Sequence[Step]) -> float | None:
    return statistics.median(step.duration_s for step in steps) if steps else None


# --- numbers ----------------------------------------------------------------------------------


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a job printed of its training; losses keep every digit."""

    losses: dict[int, str]
    """By step."""
    digests: dict[int, str]
    """Of the parameters at the end, by rank."""


def read_outcome(logs: Mapping[int, str]) -> Outcome:
    """Return the losses and digests in what each rank printed."""
    losses = {int(step): loss for rank in sorted(logs) for step, loss in _LOSS.findall(logs[rank])}
    digests = {rank: found[-1] for rank, text in logs.items() if (found := _DIGEST.findall(text))}
    return Outcome(losses=losses, digests=digests)


def find_difference(broken: Outcome, whole: Outcome, *, steps: int, dead: Collection[int]) -> str | None:
    """Say what differs between a run with deaths and one without; None if all losses and parameters agree."""
    for step in range(steps):
        mine, other = broken.losses.get(step), whole.losses.get(step)
        if mine is None or mine != other:
            return f"the loss of step {step} is {mine}, without the failure {other}"
    survivors = sorted(whole.digests.keys() - set(dead))
    if not survivors:
        return "no worker told its parameters"
    for rank in survivors:
        if broken.digests.get(rank) != whole.digests[rank]:
            return f"the parameters of rank {rank} are others than without the failure"
    return None
