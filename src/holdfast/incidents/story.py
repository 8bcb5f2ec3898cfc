"""A run's story: give it every record of a run's logs, in order, and ask at any time how the run is."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from holdfast.incidents.crew import Crew
from holdfast.incidents.order import merge_nodes
from holdfast.incidents.trouble import Troubles
from holdfast.incidents.values import Bill, Incident, RunState, RunView
from holdfast.telemetry import Summary
from holdfast.values import (
    Applied,
    AttemptStarted,
    JobStopped,
    LauncherDied,
    Record,
    Regrouped,
    RunEnded,
    RunStarted,
    StepSeen,
)

_HOUR_S = 3600.0


class Story:
    """What is known of one run."""

    def __init__(self) -> None:
        self._crew = Crew()
        self._troubles = Troubles()
        self._first: Record | None = None
        self._started: Record | None = None
        self._ended: Record | None = None
        self._stopped = ""
        self._is_lost = False
        self._in_force: list[str] = []
        self._step = -1
        self._head = sys.maxsize
        """The first node: its launcher's end is the run's."""

    def add(self, record: Record) -> None:
        """Take in what happened."""
        self._first = self._first or record
        self._head = min(self._head, record.stamp.node)
        is_head = record.stamp.node == self._head
        self._start_anew(record, is_head=is_head)
        self._crew.add(record)
        self._troubles.add(record, is_head=is_head)
        match record.event:
            case RunStarted() if self._started is None or is_head:
                self._started = record
            case RunEnded() if is_head:
                self._ended = record
            case LauncherDied() if is_head:
                self._is_lost = True
            case JobStopped(reason=reason):
                self._stopped = reason
            case Applied(level="undo"):
                self._in_force = []
            case Applied(level=level):
                self._in_force.append(level)
            case StepSeen(step=step) | Regrouped(version=step):
                self.reach(step)
            case _:
                pass
        if isinstance(record.event, Applied):
            self.reach(record.event.version)

    def reach(self, step: int, at: str = "") -> None:
        """Take in how far the run has come, which its events do not tell, and when that was seen.

        With a time, a hang is over when a later step is made; a guard does not tell that.
        """
        was_hung = self._troubles.is_hung
        self._troubles.reach(step, at)
        self._step = max(self._step, step)
        if was_hung and not self._troubles.is_hung:
            self._crew.move()

    def add_summary(self, row: Summary) -> None:
        """Take in how far a node had come; rows of attempts that are over tell nothing of this one."""
        if row.steps and row.attempt >= self._crew.attempt:
            self.reach(max(row.steps.values()), row.at)

    def view(self) -> RunView:
        """Return the run as it is now."""
        started = self._started
        incidents = self._troubles.view()
        return RunView(
            run_id=started.event.run_id if started and isinstance(started.event, RunStarted) else "",
            argv=tuple(started.event.argv) if started and isinstance(started.event, RunStarted) else (),
            state=self._state(),
            started_at=_when(started or self._first),
            ended_at=self._ended.stamp.at if self._ended is not None else None,
            reason=self._reason(),
            attempt=self._crew.attempt,
            world_size=self._crew.world_size,
            nodes=self._crew.nodes,
            pp=self._crew.pp,
            microbatches=self._crew.microbatches,
            generation=self._crew.generation,
            step=self._step,
            levels=tuple(self._in_force),
            workers=self._crew.view(),
            incidents=incidents,
            bill=make_bill(incidents, self._crew.world_size),
        )

    def _start_anew(self, record: Record, *, is_head: bool) -> None:
        """Forget what an attempt, or a run in the same place, that came before has left."""
        match record.event:
            case RunStarted() if (
                is_head and self._started is not None and self._started.stamp.node == self._head
            ):
                self._crew = Crew()
                self._ended, self._is_lost = None, False
            case AttemptStarted() if record.stamp.attempt > self._crew.attempt:
                pass
            case _:
                return
        self._troubles.start_anew(record)
        self._in_force, self._stopped, self._step = [], "", -1

    def _reason(self) -> str:
        if self._ended is not None and isinstance(self._ended.event, RunEnded):
            is_well = _name_end(self._ended.event) == "ended"
            return self._ended.event.reason if is_well else self._stopped or self._ended.event.reason
        return "its launcher was killed" if self._is_lost else self._stopped

    def _state(self) -> RunState:
        if self._ended is not None and isinstance(self._ended.event, RunEnded):
            return _name_end(self._ended.event)
        if self._is_lost:
            return "lost"
        if self._troubles.is_hung:
            return "hung"
        if not self._crew.is_training:
            return "starting"
        if self._troubles.is_slow:
            return "slow"
        return "degraded" if self._crew.is_short else "training"


def tell_story(records: Iterable[Record], *, summaries: Iterable[Summary] = (), step: int = -1) -> RunView:
    """Return what a run's records come to: of all nodes, one after the other or mixed.

    How far it came is told by its summaries, or by ``step``, the last one that was seen.
    """
    story = Story()
    for line in merge_nodes(records, summaries):
        if isinstance(line, Record):
            story.add(line)
        else:
            story.add_summary(line)
    story.reach(step)
    return story.view()


def make_bill(incidents: Iterable[Incident], gpus: int) -> Bill:
    """Return what incidents cost all GPUs of a job together."""
    told = list(incidents)
    hours = gpus / _HOUR_S
    return Bill(
        lost_gpu_h=hours * sum(each.lost_s for each in told),
        paid_gpu_h=hours * sum(each.paid_s for each in told),
        saved_gpu_h=hours * sum(each.saved_s for each in told),
    )


def _name_end(event: RunEnded) -> RunState:
    if event.reason in ("succeeded", "left the rendezvous", "left out", "the watched process ended"):
        return "ended"
    return "stopped" if event.reason.startswith("stopped") else "failed"


def _when(record: Record | None) -> str:
    return record.stamp.at if record is not None else ""
