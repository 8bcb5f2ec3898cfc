"""What a broken run went through, in figures: a pure function of its steps and its event log."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from holdfast.values import AttemptEnded, Fault, FaultInjected, Record, Step

_WARM_UP = 3
"""First steps of an attempt that are not typical: memory is being allocated, connections are being made."""


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault did to the step time of the whole job."""

    fault: Fault
    before_s: float
    during_s: float
    after_s: float | None
    """None where the run did not go on long enough."""

    @property
    def factor(self) -> float:
        """How many times longer a step took."""
        return self.during_s / self.before_s


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How long a death kept the job from training."""

    rank: int
    pause_s: float
    """From the death of the first worker to the end of the job's next first step."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run."""

    healthy_s: float | None
    """Median step time under no fault; None where there were too few steps."""
    slowdowns: list[Slowdown]
    recoveries: list[Recovery]


def tell(steps: Sequence[Step], records: Sequence[Record]) -> Story:
    """Reduce the steps and events of one node to its figures."""
    faults = [record.event.fault for record in records if isinstance(record.event, FaultInjected)]
    lasting = [fault for fault in faults if fault.kind not in ("kill", "hang")]
    slowdowns = [_slowdown(steps, fault) for fault in lasting]
    recoveries = [
        _recovery(steps, record.event) for record in records if isinstance(record.event, AttemptEnded)
    ]
    return Story(
        healthy_s=_median(steps, lambda step: not any(fault.is_active(step.step) for fault in lasting)),
        slowdowns=[found for found in slowdowns if found is not None],
        recoveries=[found for found in recoveries if found is not None],
    )


def _slowdown(steps: Sequence[Step], fault: Fault) -> Slowdown | None:
    # In the attempt that the fault hit: the steps of a later one have the same numbers.
    first = [step for step in steps if step.attempt == 0]
    before = _median(first, lambda step: step.step < fault.at_step)
    during = _median(first, lambda step: fault.is_active(step.step))
    end = fault.at_step + (fault.for_steps or 0)
    after = _median(first, lambda step: fault.for_steps is not None and step.step >= end)
    if before is None or during is None:
        return None
    return Slowdown(fault=fault, before_s=before, during_s=during, after_s=after)


def _recovery(steps: Sequence[Step], end: AttemptEnded) -> Recovery | None:
    if end.first is None:
        return None
    died_s = end.first.seen_s
    later_s = [step.ended_s for step in steps if step.step == 0 and step.ended_s > died_s]
    return Recovery(rank=end.first.rank, pause_s=min(later_s) - died_s) if later_s else None


def _median(steps: Sequence[Step], is_meant: Callable[[Step], bool]) -> float | None:
    durations = [step.duration_s for step in steps if step.step >= _WARM_UP and is_meant(step)]
    return statistics.median(durations) if durations else None
