"""What a run looks like to somebody who looks on; also the JSON of the page and of ``holdfast report``."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.findings import Suspect

StageName = Literal["detected", "named", "decided", "done", "verified", "closed"]
IncidentKind = Literal["slow", "death", "hang"]
WorkerState = Literal["starting", "training", "slow", "hung", "dead", "left", "done"]
RunState = Literal["starting", "training", "slow", "degraded", "hung", "failed", "stopped", "ended", "lost"]
"""``degraded``: it trains without some of its workers. ``lost``: its launcher was killed."""


SILENT = "does not answer any more"
"""Of who is gone, until its launcher says what it was."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of an incident."""

    name: StageName
    at: str
    """ISO 8601 in UTC, by the clock of whoever wrote it."""
    words: str
    event_id: str


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went wrong, from its first sign to its end."""

    incident_id: str
    """The id of the event that opened it."""
    kind: IncidentKind
    opened_at: str
    closed_at: str | None = None
    """None: it is not over."""
    since_step: int | None = None
    stages: tuple[Stage, ...] = ()
    ranks: tuple[int, ...] = ()
    """Who is to blame, or who died."""
    suspects: tuple[Suspect, ...] = ()
    lost_s: float = 0.0
    """Against a healthy job, what was done about it included."""
    stood_s: float = 0.0
    """Of that, nobody trained: after deaths and hangs."""
    paid_s: float = 0.0
    """Of that, for what was done about it."""
    saved_s: float = 0.0
    """What more it would have cost, had nothing been done; only where steps were seen to get shorter."""

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.closed_at is None

    @property
    def words(self) -> str:
        """What it is: what was first seen of it, or what that turned out to be."""
        seen = [stage.words for stage in self.stages if stage.name == "detected"]
        return next((words for words in seen if not words.endswith(SILENT)), seen[0] if seen else self.kind)

    @property
    def last(self) -> StageName:
        """How far it has come; what is learned of it later does not take it back."""
        learned: tuple[StageName, ...] = ("detected", "named")
        done = [stage.name for stage in self.stages if stage.name not in learned]
        if done:
            return done[-1]
        return "named" if any(stage.name == "named" for stage in self.stages) else "detected"


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a job."""

    rank: int
    node: int
    host: str
    state: WorkerState
    place: int | None = None
    """``pipeline * pp + stage``; None: it holds none."""
    slowdown: float | None = None
    """As it was named; None: it is not slow."""
    speed: float = 1.0
    """What the plan in force reckons with."""


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What incidents cost, in hours of one GPU; a rank is taken for one."""

    lost_gpu_h: float = 0.0
    paid_gpu_h: float = 0.0
    saved_gpu_h: float = 0.0


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as far as its events tell."""

    run_id: str = ""
    argv: tuple[str, ...] = ()
    state: RunState = "starting"
    started_at: str = ""
    ended_at: str | None = None
    reason: str = ""
    attempt: int = 0
    world_size: int = 0
    nodes: int = 0
    pp: int = 1
    microbatches: int = 0
    generation: int = 0
    step: int = -1
    """The last one that was heard of."""
    levels: tuple[str, ...] = ()
    """Of what was done and is in force."""
    workers: tuple[Worker, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """Oldest first."""
    bill: Bill = Bill()
