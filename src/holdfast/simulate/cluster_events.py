"""What is noticed on the nodes of a simulated cluster: checks, XIDs, states, tickets, exclusions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from holdfast.simulate.cluster_plan import SYMPTOMS, ClusterPlan, NodeFailure
from holdfast.simulate.cluster_record import Recorder, node_name


class Witness:
    """Writes events the way monitoring would: late, not always, and sometimes for nothing."""

    def __init__(self, plan: ClusterPlan, rng: random.Random, recorder: Recorder) -> None:
        self._plan, self._rng, self._recorder = plan, rng, recorder
        self._tickets = 0

    def failed(self, failure: NodeFailure, now_s: float) -> None:
        """Let health checks and the kernel's log show a failure, if anybody notices it."""
        if not failure.is_noticed:
            return
        at_s = now_s + self._rng.expovariate(1 / self._plan.notice_mean_s)
        name = node_name(failure.node)
        self._write(name, at_s, "check", failure.symptom.check, "critical")
        for code, share in failure.symptom.xids:
            if self._rng.random() < share:
                self._write(name, now_s, "xid", f"xid {code}", "critical")

    def out(self, failure: NodeFailure, now_s: float) -> dict[str, Any]:
        """Note that a node takes no more jobs, and perhaps a ticket; return the row, for its end."""
        if self._rng.random() < self._plan.ticket_share:
            self._tickets += 1
            self._write(node_name(failure.node), now_s + 600, "ticket", f"T{self._tickets}", None)
        state = "DOWN" if failure.is_silent else "DRAIN"
        text = "Not responding" if failure.is_silent else "health check failed"
        return self._write(node_name(failure.node), now_s, "state", state, None, text=text)

    def ended(self, nodes: Sequence[int], outcome: str, job: str, span_s: tuple[float, float]) -> None:
        """Note what has nothing to do with a failure: false alarms, and errors that programs make."""
        chance = self._rng.random()
        if outcome == "COMPLETED" and chance < self._plan.false_alarm_share:
            name = self._rng.choice(SYMPTOMS).check
            at_s = self._rng.uniform(*span_s)
            self._write(node_name(self._rng.choice(nodes)), at_s, "check", name, "critical", job=job)
        if outcome == "FAILED" and chance < 0.1:
            self._write(node_name(nodes[0]), span_s[1], "xid", "xid 31", "warning", job=job)

    def exclude(self, node: int, job: str, now_s: float) -> None:
        """Note that a job does not want a node."""
        self._write(node_name(node), now_s, "exclusion", "exclude", None, job=job)

    def _write(  # noqa: PLR0913 - a row of the table.
        self,
        node: str,
        at_s: float,
        kind: str,
        name: str,
        severity: str | None,
        *,
        job: str | None = None,
        text: str | None = None,
    ) -> dict[str, Any]:
        return self._recorder.event(
            node=node, at=at_s, kind=kind, name=name, severity=severity, job=job, text=text
        )
