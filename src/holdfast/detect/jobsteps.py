"""The steps of a job, out of the steps of its ranks: one value when all ranks have got there."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable

import msgspec

from holdfast.values import Step, StepFlag

_MOST_OPEN = 64
"""Steps that may wait for a rank; one that is further behind has gone silent, which is another matter."""
_NOT_TRAINING = (
    StepFlag.EVALUATION | StepFlag.CHECKPOINT | StepFlag.SKIPPED | StepFlag.FIRST | StepFlag.COMPILE
)
_RECENT = 20


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the whole job."""

    step: int
    duration_s: float
    """Of the median rank; they wait for each other, so it is nearly the same for all."""
    ended_s: float
    work: float | None
    """Elements of all batches together; None where a rank does not know."""
    is_typical: bool
    """Training alone, as most steps are; others say nothing about how fast it is."""


class JobSteps:
    """Joins the ranks of one attempt; memory is bounded."""

    def __init__(self) -> None:
        self.attempt = 0
        self.cycle = 0
        """What a step was last taken to be: steps before the last change of it do not compare."""
        self._last: dict[int, int] = {}
        self._open: dict[int, list[Step]] = {}
        self._flagged: deque[bool] = deque(maxlen=_RECENT)

    @property
    def ranks(self) -> list[int]:
        """Those who were seen."""
        return sorted(self._last)

    def take(self, steps: Iterable[Step]) -> list[JobStep]:
        """Take in steps of ranks, each rank's in order; return those that all ranks have finished."""
        for step in steps:
            if step.attempt > self.attempt:
                self.__init__()  # type: ignore[misc]
                self.attempt = step.attempt
            elif step.attempt < self.attempt:
                continue
            self.cycle = max(self.cycle, step.cycle)
            self._last[step.rank] = step.step
            self._open.setdefault(step.step, []).append(step)
        return self._close()

    def _close(self) -> list[JobStep]:
        if not self._last:
            return []
        reached = min(self._last.values())
        newest = max(self._last.values())
        done = [number for number in sorted(self._open) if number <= max(reached, newest - _MOST_OPEN)]
        return [job_step for number in done if (job_step := self._join(number)) is not None]

    def _join(self, number: int) -> JobStep | None:
        together = [step for step in self._open.pop(number) if step.duration_s > 0]
        if not together:
            return None
        is_flagged = any(step.flags & _NOT_TRAINING for step in together)
        self._flagged.append(is_flagged)
        # Where most steps have it in them, it belongs to them.
        is_usual = sum(self._flagged) * 2 > len(self._flagged) and len(self._flagged) == _RECENT
        work = float(sum(step.work for step in together)) if all(step.work for step in together) else None
        return JobStep(
            step=number,
            duration_s=statistics.median(step.duration_s for step in together),
            ended_s=max(step.ended_s for step in together),
            work=work,
            is_typical=not is_flagged or is_usual,
        )
