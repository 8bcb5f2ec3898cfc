"""Who takes part in a run and how each fares: a fold over its events."""

from __future__ import annotations

import msgspec

from holdfast.incidents.values import Worker, WorkerState
from holdfast.values import (
    Applied,
    AttemptEnded,
    AttemptStarted,
    Decided,
    IncidentClosed,
    JobHung,
    JobRelieved,
    JobSlowed,
    LauncherDied,
    NodeLeft,
    Record,
    Regrouped,
    StepSeen,
    SuspectsNamed,
    Verified,
    WorkerDied,
    WorkerHung,
    WorkerReturned,
)


class _Member(msgspec.Struct, kw_only=True):
    node: int
    host: str
    state: WorkerState = "starting"
    place: int | None = None
    slowdown: float | None = None


class Crew:
    """The workers of the attempt that was last heard of."""

    def __init__(self) -> None:
        self.attempt = 0
        self.world_size = 0
        self.nodes = 0
        self.pp = 1
        self.microbatches = 0
        self.generation = 0
        self._members: dict[int, _Member] = {}
        self._speeds: dict[int, float] = {}
        """What the plan in force reckons with."""
        self._wanted: dict[int, dict[int, float]] = {}
        """By the number of a decision that is not in force yet."""

    def add(self, record: Record) -> None:
        """Take in what happened."""
        match record.event:
            case AttemptStarted():
                self._start(record, record.event)
            case AttemptEnded():
                self._end(record, record.event)
            case Regrouped():
                self._regroup(record.event)
            case StepSeen(rank=rank):
                self._meet(record, rank)
                self._set(rank, "training")
            case WorkerDied(death=death) if not self._is_old(record):
                self._set(death.rank, "dead")
            case LauncherDied():
                self._lose(record)
            case WorkerReturned(rank=rank):
                self._set(rank, "starting")
            case WorkerHung(rank=rank):
                self._set(rank, "hung")
            case NodeLeft(ranks=ranks) if not self._is_old(record):
                for rank in ranks:
                    self._set(rank, "left")
            case _:
                self._add_speed(record)

    def view(self) -> tuple[Worker, ...]:
        """Return all of them, by rank."""
        return tuple(
            Worker(
                rank=rank,
                node=member.node,
                host=member.host,
                state=member.state,
                place=member.place,
                slowdown=member.slowdown,
                speed=self._speeds.get(rank, 1.0),
            )
            for rank, member in sorted(self._members.items())
        )

    def move(self) -> None:
        """Take in that steps are made: nobody hangs any more."""
        for member in self._members.values():
            if member.state == "hung":
                member.state = "training"

    @property
    def is_short(self) -> bool:
        """Whether somebody is missing."""
        return any(member.state in ("dead", "hung") for member in self._members.values())

    @property
    def is_training(self) -> bool:
        """Whether a step was seen."""
        return any(member.state in ("training", "slow") for member in self._members.values())

    # --- who is there -------------------------------------------------------------------------

    def _is_old(self, record: Record) -> bool:
        """Say whether it is about an attempt that is over; another node may tell late."""
        return record.stamp.attempt < self.attempt

    def _start(self, record: Record, event: AttemptStarted) -> None:
        if self._is_old(record):
            return
        if record.stamp.attempt != self.attempt:
            self._members = {}
            self._speeds = {}
            self.generation = 0
        self.attempt = record.stamp.attempt
        self.world_size, self.nodes = event.world_size, event.nodes
        for rank in event.ranks:
            # Logs of several nodes may be read in any order: what others said of it already stays true.
            member = self._members.setdefault(rank, _Member(node=record.stamp.node, host=record.stamp.host))
            member.node, member.host = record.stamp.node, record.stamp.host
            if member.state in ("dead", "left", "done"):
                member.state = "starting"

    def _meet(self, record: Record, rank: int) -> None:
        """Take in where a rank is that no launcher of this run has started."""
        if self._is_old(record):
            return
        member = self._members.setdefault(rank, _Member(node=record.stamp.node, host=record.stamp.host))
        if member.node < 0:
            member.node, member.host = record.stamp.node, record.stamp.host
        self.world_size = max(self.world_size, len(self._members)) if not self.nodes else self.world_size

    def _end(self, record: Record, event: AttemptEnded) -> None:
        if self._is_old(record):
            return
        for member in self._members.values():
            if member.node == record.stamp.node and member.state not in ("dead", "left"):
                member.state = "done" if event.reason == "succeeded" else "left"

    def _lose(self, record: Record) -> None:
        """Take in that a launcher was killed, and its workers with it."""
        for member in self._members.values():
            if member.node == record.stamp.node and member.state not in ("done", "left"):
                member.state = "dead"

    def _regroup(self, event: Regrouped) -> None:
        self.generation, self.pp, self.microbatches = event.generation, event.pp, event.microbatches
        places = event.places or event.members
        self.world_size = max(self.world_size, len(event.members))
        for rank, place in zip(event.members, places, strict=False):
            # Who joined by itself has no launcher of this run that could have said where it is.
            member = self._members.setdefault(rank, _Member(node=-1, host=""))
            member.place = place
            if member.state in ("dead", "hung", "starting"):
                member.state = "training"
        for rank, member in self._members.items():
            if rank not in event.members:
                member.place = None
                # Of a node that is lost nobody else tells.
                if rank in event.dead and member.state != "left":
                    member.state = "dead"

    def _set(self, rank: int, state: WorkerState) -> None:
        member = self._members.get(rank)
        if member is None or (member.state == "dead" and state == "training"):
            return
        member.state = state

    # --- how fast they are --------------------------------------------------------------------

    def _add_speed(self, record: Record) -> None:
        if isinstance(record.event, JobSlowed | JobRelieved | Applied | Verified):
            self.move()
        match record.event:
            case SuspectsNamed(since_step=step, suspects=suspects) if step > 0:
                self._heal()
                for suspect in suspects:
                    for rank in suspect.ranks:
                        self._blame(rank, suspect.slowdown)
            case JobHung(suspects=suspects):
                for suspect in suspects:
                    for rank in suspect.ranks:
                        self._set(rank, "hung")
            case JobRelieved(change=change) if not change.is_slow and not self._speeds:
                self._heal()
            case IncidentClosed():
                self._heal()
            case Decided(is_dry=False):
                self._wanted = {record.event.number: dict(record.event.speeds)}
            case Applied():
                self._speeds = self._wanted.pop(record.event.number, self._speeds)

    def _blame(self, rank: int, slowdown: float | None) -> None:
        member = self._members.get(rank)
        if member is not None and member.state not in ("dead", "left"):
            member.state, member.slowdown = "slow", slowdown

    def _heal(self) -> None:
        for member in self._members.values():
            member.slowdown = None
            if member.state == "slow":
                member.state = "training"
