"""A job of a simulated cluster and its attempts, and how the scheduler writes them down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.simulate.cluster_plan import Request
from holdfast.simulate.cluster_record import node_list
from holdfast.simulate.kernel import Event

QOS = {1: "lowest", 2: "normal", 3: "high"}


@dataclass(slots=True, eq=False)
class Job:
    """A job of the queue, and what is left of it."""

    id: str
    request: Request
    eligible_s: float
    exclude: tuple[int, ...] = ()
    attempts: int = 0
    saved_s: float = 0.0
    """Progress up to the last checkpoint."""
    crashes: int = 0
    is_restarted: bool = False
    """Whether it waits, or runs, because a failure ended the attempt before."""

    @property
    def rank(self) -> tuple[int, float, str]:
        """Who comes first in the queue."""
        return -self.request.priority, self.eligible_s, self.id

    def row(self, state: str, attempt: int) -> dict[str, Any]:
        """Return what is known of an attempt before it starts; times are seconds."""
        request = self.request
        return {
            "job": self.id,
            "attempt": attempt,
            "name": request.name,
            "user": request.user,
            "account": "research",
            "partition": "train",
            "qos": QOS[request.priority],
            "priority": request.priority,
            "state": state,
            "submit": request.submit_s,
            "eligible": self.eligible_s,
            "gpus": request.gpus,
            "exclude": node_list(self.exclude) if self.exclude else None,
        }


@dataclass(slots=True, eq=False)
class Running:
    """An attempt that goes on."""

    job: Job
    nodes: list[int]
    each: int
    """GPUs of each node."""
    start_s: float
    end: Event

    @property
    def order(self) -> tuple[int, int, float, str]:
        """Whom to preempt first: the least important, the smallest, the youngest."""
        return self.job.request.priority, self.job.request.gpus, -self.start_s, self.job.id

    def row(self, state: str, end_s: float | None) -> dict[str, Any]:
        """Return what is known of it when it has ended, or goes on."""
        return self.job.row(state, self.job.attempts) | {
            "start": self.start_s,
            "end": end_s,
            "nodes": len(self.nodes),
            "node_list": node_list(self.nodes),
        }
