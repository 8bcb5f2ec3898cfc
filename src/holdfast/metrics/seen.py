"""What has to be known of a run to show it."""

from __future__ import annotations

import msgspec

from holdfast.incidents.values import RunView
from holdfast.telemetry import Summary
from holdfast.values import Applied, NodeLeft, Record, WorkerDied


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast one rank is."""

    rank: int
    step_s: float
    own_s: float | None = None
    """None: waiting was not measured."""


class Tally(msgspec.Struct, kw_only=True):
    """What is only counted; a fold over a run's records."""

    deaths: int = 0
    actions: dict[str, int] = {}
    """By level."""

    def add(self, record: Record) -> None:
        """Take in what happened."""
        match record.event:
            case WorkerDied():
                self.deaths += 1
            case Applied(level=level):
                self.actions[level] = self.actions.get(level, 0) + 1
            case NodeLeft():  # The attempt ends with it, so nobody can say that it is in force.
                self.actions["S4"] = self.actions.get("S4", 0) + 1


def name_run(name: str, key: str) -> str:
    """Return the value of the label ``run``: what a person calls it, and enough to tell it from another."""
    return f"{name}-{key[:8]}" if name else key[:32]


class RunSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as it is known now."""

    key: str
    """Different for every run, the same on all its nodes."""
    name: str = ""
    host: str = ""
    """Of node 0."""
    heard_s: float
    """When it was heard of last, in seconds since 1970."""
    view: RunView
    step: int = -1
    tally: Tally
    paces: tuple[Pace, ...] = ()
    lost_records: dict[str, int] = {}
    """By host."""
    is_live: bool = True
    """False: it was not heard of for minutes, and only that is shown."""
    is_whole: bool = True
    """False: only some of its ranks are known, as to a guard of another node than the first."""

    @property
    def run(self) -> str:
        """The value of the label."""
        return name_run(self.name, self.key)


def read_paces(summary: Summary) -> tuple[Pace, ...]:
    """Return how fast the ranks of a node were within a second."""
    return tuple(
        Pace(rank=int(rank), step_s=step_s, own_s=summary.own_s.get(rank))
        for rank, step_s in summary.duration_s.items()
        if rank.isdecimal()
    )
