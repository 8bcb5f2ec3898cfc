"""How well a detector did: per event, and per job as FALCON counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from series.truth import Job, onsets_of

GRACE = 20
"""Steps by which a report may lie beside the fault that it is about."""


@dataclass(frozen=True)
class Report:
    """A detector says that the job got slower."""

    step: int
    """Where it says that it began."""
    detected: int
    """The step after which it said so."""


@dataclass
class Score:
    """Counts over many jobs."""

    jobs: int = 0
    right: int = 0
    onsets: int = 0
    found: int = 0
    true: int = 0
    false: int = 0
    latencies: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Names of the jobs that were judged wrongly."""

    def add(self, job: Job, reports: Sequence[Report]) -> None:
        """Count one job."""
        onsets = onsets_of(job.slowdown)
        is_true = [_touches_fault(job, report) for report in reports]
        false = is_true.count(False)
        found = 0
        for onset in onsets:
            late = [
                r.detected - onset.step for r in reports if onset.begins <= r.detected < onset.end + GRACE
            ]
            if late:
                found += 1
                self.latencies.append(max(0, min(late)))
        is_right = false == 0 and (found > 0 or not onsets)
        self.jobs += 1
        self.right += is_right
        self.onsets += len(onsets)
        self.found += found
        self.true += is_true.count(True)
        self.false += false
        if not is_right or found < len(onsets):
            self.wrong.append(job.name)

    def row(self) -> dict[str, float | int | None]:
        """Return the figures of a table's row."""
        reports = self.true + self.false
        return {
            "jobs_right": self.right,
            "accuracy": round(self.right / self.jobs, 4) if self.jobs else None,
            "precision": round(self.true / reports, 4) if reports else None,
            "recall": round(self.found / self.onsets, 4) if self.onsets else None,
            "latency_median": float(np.median(self.latencies)) if self.latencies else None,
            "latency_p90": float(np.quantile(self.latencies, 0.9)) if self.latencies else None,
            "false_alarms": self.false,
        }


def _touches_fault(job: Job, report: Report) -> bool:
    """Say whether there is a fault of any strength about where the report says that one began."""
    first = max(0, report.step - GRACE)
    return bool(np.any(job.slowdown[first : report.step + GRACE + 1] > 1.0))
