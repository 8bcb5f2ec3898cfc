"""The steps of a job, out of the steps of its ranks: one value when all ranks have got there."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable

import msgspec

from holdfast.telemetry import Step, StepFlag

_MOST_OPEN = 64
"""Steps that may wait for a rank; one that is further behind is not waited for until it has caught up."""
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
    """Elements of the usual rank's batches; None where a rank does not know. If one rank has more to do than
    the others, or others come and go, that has to show in the time of a step."""
    is_typical: bool
    """Training alone, as most steps are; others say nothing about how fast it is."""
    parts: list[Step] = []
    """What it was for each rank."""


class JobSteps:
    """Joins the ranks of one attempt; memory is bounded."""

    def __init__(self) -> None:
        self.attempt = 0
        self.cycle = 0
        """What a step was last taken to be: steps before the last change of it do not compare."""
        self._last: dict[int, int] = {}
        """The step that each rank has finished last, of those who are waited for."""
        self._cycles: dict[int, int] = {}
        self._open: dict[int, dict[int, Step]] = {}
        """By step and rank."""
        self._closed = -1
        self._flagged: deque[bool] = deque(maxlen=_RECENT)

    @property
    def ranks(self) -> list[int]:
        """Those who are waited for."""
        return sorted(self._last)

    def take(self, steps: Iterable[Step]) -> list[JobStep]:
        """Take in steps of ranks; return those that all ranks have finished, in order, each of them once."""
        for step in steps:
            if step.attempt > self.attempt:
                self.__init__()  # type: ignore[misc]
                self.attempt = step.attempt
            elif step.attempt < self.attempt:
                continue
            self.cycle = max(self.cycle, step.cycle)
            self._cycles[step.rank] = max(step.cycle, self._cycles.get(step.rank, 0))
            if step.step > self._closed:
                self._last[step.rank] = max(step.step, self._last.get(step.rank, -1))
                self._open.setdefault(step.step, {})[step.rank] = step
        return self._close()

    def _close(self) -> list[JobStep]:
        if not self._last:
            return []
        oldest = max(self._last.values()) - _MOST_OPEN
        if min(self._last.values()) < oldest:
            self._last = {rank: last for rank, last in self._last.items() if last >= oldest}
        reached = min(self._last.values())
        done = [number for number in sorted(self._open) if number <= reached]
        self._closed = max(self._closed, reached)
        return [job_step for number in done if (job_step := self._join(number)) is not None]

    def _join(self, number: int) -> JobStep | None:
        together = [step for step in self._open.pop(number).values() if step.duration_s > 0]
        # What a rank finished before it took a step to be something else does not compare with what follows.
        if not together or any(step.cycle < self._cycles[step.rank] for step in together):
            return None
        is_flagged = any(step.flags & _NOT_TRAINING for step in together)
        self._flagged.append(is_flagged)
        # Where most steps have it in them, it belongs to them.
        is_usual = sum(self._flagged) * 2 > len(self._flagged) and len(self._flagged) == _RECENT
        work = sorted(step.work for step in together)
        return JobStep(
            step=number,
            duration_s=statistics.median(step.duration_s for step in together),
            ended_s=max(step.ended_s for step in together),
            work=float(work[(len(work) - 1) // 2]) if work[0] else None,
            is_typical=not is_flagged or is_usual,
            parts=together,
        )
