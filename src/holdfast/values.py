"""The vocabulary: frozen values that cross rooms, one definition for memory, log, wire and ``--json``.

*Rank* is a position, *node* is a machine, *step* is one optimizer update, *attempt* counts the
restarts of all workers from 0. Durations are seconds on a local monotonic clock; times are UTC.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from holdfast.faults import Fault
from holdfast.findings import ChangePoint, Suspect

SCHEMA_VERSION = 1
"""Version of every file in a run directory; raised when a reader of the old one would misread."""

# --- deaths -----------------------------------------------------------------------------------


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that ended without success, as its launcher saw it."""

    rank: int
    local_rank: int
    node: int
    host: str
    pid: int
    exit_code: int
    """As a shell reports it: 128 + signal number when a signal ended it."""
    signal: str | None = None
    """Name of the signal that ended it, such as ``SIGKILL``."""
    error: str | None = None
    """Last line of its traceback."""
    traceback: str | None = None
    seen_s: float = 0.0
    """When, on the node's monotonic clock: at the exception, else when the launcher saw it gone."""


# --- events -----------------------------------------------------------------------------------


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What every line of the event log carries beside its event."""

    schema: int
    event_id: str
    at: str
    """ISO 8601 in UTC, with offset."""
    host: str
    node: int
    attempt: int


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="name"):
    """Something that happened; ``name`` in the log says which subclass it is."""

    type: ClassVar[Literal["begin", "end", "instant"]] = "instant"


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """The launcher of a node began its work."""

    type: ClassVar = "begin"
    run_id: str
    argv: list[str]
    pid: int


class AttemptStarted(Event, frozen=True, kw_only=True, tag="attempt_started"):
    """The nodes found each other, and this node's workers were started."""

    type: ClassVar = "begin"
    world_size: int
    nodes: int
    ranks: list[int]
    pids: list[int]
    """In the order of ``ranks``."""


class WorkerDied(Event, frozen=True, kw_only=True, tag="worker_died"):
    """A worker ended without success."""

    death: Death


class AttemptEnded(Event, frozen=True, kw_only=True, tag="attempt_ended"):
    """All workers of this node have ended; ``first`` is the one that died first, on any node."""

    type: ClassVar = "end"
    reason: Literal["succeeded", "failed", "signal", "membership"]
    first: Death | None = None


class Regrouped(Event, frozen=True, kw_only=True, tag="regrouped"):
    """The workers of a job that survives deaths agreed who they are, and where they go on."""

    generation: int
    """0 at the start; one more after every change."""
    members: list[int]
    """Ranks, in order."""
    version: int
    """How many updates have been applied."""
    places: list[int] = []
    """Pipeline and stage that each of them holds, ``pipeline * pp + stage``; none: those of their ranks."""
    pp: int = 1
    """Stages of each pipeline."""
    microbatches: int = 0
    """Of each pipeline and step; 0: not known."""
    dead: list[int]
    """Ranks, in the order in which they died."""
    newcomers: list[int] = []
    """Ranks that take part from now on."""
    was_ready: bool = False
    """Whether the plan had been made before it was needed."""


class WorkerReturned(Event, frozen=True, kw_only=True, tag="worker_returned"):
    """A worker that died was started again; it takes part when a ``regrouped`` names it."""

    rank: int
    pid: int


class JobStopped(Event, frozen=True, kw_only=True, tag="job_stopped"):
    """The workers that were left could not go on."""

    reason: str


class GuardStarted(Event, frozen=True, kw_only=True, tag="guard_started"):
    """A guard began to watch the workers of its node."""

    pid: int


class GuardDied(Event, frozen=True, kw_only=True, tag="guard_died"):
    """The guard ended while the job was running; training goes on."""

    pid: int
    exit_code: int
    signal: str | None = None


class LauncherDied(Event, frozen=True, kw_only=True, tag="launcher_died"):
    """The guard found its launcher gone; the workers of the node died with it."""

    pid: int


class StepSeen(Event, frozen=True, kw_only=True, tag="step_seen"):
    """A rank finished its first step of an attempt: start-up is over."""

    rank: int
    step: int


class WorkerHung(Event, frozen=True, kw_only=True, tag="worker_hung"):
    """A worker stood still; its guard turned that into a death, so that the others can go on."""

    rank: int
    pid: int
    phase: str
    """What it was doing, a name of ``Phase`` in small letters."""
    op: str | None = None
    """The operation of its schedule, such as ``2F1.4``; None where there was none."""
    waited_s: float
    """How long it was seen there, or stopped."""
    evidence: str
    """Why it, and not one of those who wait for it."""
    is_killed: bool = True
    """False where the setting ``kill_hung`` is off."""


class JobSlowed(Event, frozen=True, kw_only=True, tag="job_slowed"):
    """The steps of the job take longer than they should, or longer still."""

    type: ClassVar = "begin"
    change: ChangePoint


class JobRelieved(Event, frozen=True, kw_only=True, tag="job_relieved"):
    """The steps of a slow job take less long; ``change.is_slow`` says whether still too long."""

    type: ClassVar = "end"
    change: ChangePoint


class SuspectsNamed(Event, frozen=True, kw_only=True, tag="suspects_named"):
    """Who slowed the job down; nobody, where what was seen does not tell."""

    since_step: int
    suspects: list[Suspect]


class Probed(Event, frozen=True, kw_only=True, tag="probed"):
    """Ranks were tested between two steps, or before the first."""

    order: str
    ranks: list[int]
    suspects: list[Suspect]
    """Who is slow by what was timed; it replaces what was said before."""
    silent: list[str]
    """Sentences about those who did not get through."""
    gemm_s: dict[str, float] = {}
    """By rank, the best time for the same product of matrices."""
    links_s: dict[str, float] = {}
    """By ``source-target``, the best time for the same message."""


class Profiled(Event, frozen=True, kw_only=True, tag="profiled"):
    """All ranks were profiled over the same steps, and compared."""

    order: str
    why: str
    """Who wanted it: a slowdown, a person, a schedule."""
    first_step: int
    last_step: int
    suspects: list[Suspect]
    victims: list[int] = []
    missing: list[int] = []
    """Ranks without a profile."""
    blocked_s: float = 0.0
    """For how long training stood still because of it, at most."""
    folder: str | None = None
    """Where it is all kept; None: it could not be written."""


class JobHung(Event, frozen=True, kw_only=True, tag="job_hung"):
    """No rank has made a step or a call for too long."""

    lasted_s: float
    limit_s: float
    """Derived from how long steps and pauses took before."""
    suspects: list[Suspect]
    stacks: dict[str, list[str]] = {}
    """By rank, innermost frame first; ranks that did not answer are absent."""
    dumps: str | None = None
    """Folder of Flight Recorder dumps, where there are any."""


class Decided(Event, frozen=True, kw_only=True, tag="decided"):
    """Something is to be done about a slow job, or would be, were it allowed; with its numbers."""

    number: int
    """Of the decision; what comes of it has the same."""
    level: str
    """``S2``: work is shared out anew, ``S3``: workers change places too, ``S4``: somebody is left out,
    ``undo``: all as it was."""
    since_step: int
    """When the trouble began."""
    speeds: dict[int, float] = {}
    """What the plan is to reckon with, by rank; who is not named is healthy."""
    moves: list[tuple[int, int]] = []
    """From which place to which workers go."""
    without: list[int] = []
    """Ranks that are to take no part."""
    gain: float
    """By how much steps should get shorter, in healthy steps."""
    healthy_s: float
    """What a healthy step takes."""
    saved_s: float
    """What it would have saved since the trouble began."""
    lost_s: float
    """What the trouble has cost so far."""
    price_s: float
    """What it is expected to cost: seconds in which nobody trains."""
    outlook_s: float
    """How much longer the trouble is expected to last."""
    is_dry: bool = False
    """It is not done, because it is not allowed."""
    is_rollback: bool = False
    """It takes back what did not help."""
    is_asked: bool = False
    """A person wanted it."""


class Applied(Event, frozen=True, kw_only=True, tag="applied"):
    """A decision is in force."""

    number: int
    level: str
    version: int
    """The step from which on it is."""
    pause_s: float
    """For how long nobody trained because of it."""


class Verified(Event, frozen=True, kw_only=True, tag="verified"):
    """What was done has shown, over some steps, what it is worth."""

    number: int
    level: str
    promised: float
    """By how much steps were to get shorter, in healthy steps."""
    gained: float
    """By how much they did."""
    healthy_s: float
    """What a healthy step takes."""
    is_enough: bool
    """False: it is taken back."""


class Ordered(Event, frozen=True, kw_only=True, tag="ordered"):
    """A person asked for something while the run went on."""

    order: str
    """Its number, by which it is known where it was asked."""
    what: str
    """In a few words."""
    who: str
    """Who asked, as far as is known."""
    outcome: str
    """What came of it, in one clause."""
    is_done: bool


class Dropped(Event, frozen=True, kw_only=True, tag="dropped"):
    """A decision was not carried out; nothing was changed."""

    number: int
    level: str
    reason: str


class NodeLeft(Event, frozen=True, kw_only=True, tag="node_left"):
    """A node was too slow and has left the job, which goes on without it."""

    ranks: list[int]
    """Its workers."""
    scheduler: str
    """What came of telling the scheduler, in one clause."""


class IncidentClosed(Event, frozen=True, kw_only=True, tag="incident_closed"):
    """A slow job is well again, and arranged as a healthy one: the bill."""

    type: ClassVar = "end"
    since_step: int
    lasted_s: float
    lost_s: float
    """Against a healthy job, pauses included."""
    paid_s: float
    """Of that, for what was done about it."""


class FaultInjected(Event, frozen=True, kw_only=True, tag="fault_injected"):
    """A fault of the lab took hold."""

    type: ClassVar = "begin"
    fault: Fault
    step: int
    via: str


class FaultRelieved(Event, frozen=True, kw_only=True, tag="fault_relieved"):
    """A fault of the lab was lifted."""

    type: ClassVar = "end"
    fault: Fault
    step: int


class RunEnded(Event, frozen=True, kw_only=True, tag="run_ended"):
    """The launcher of a node is done."""

    type: ClassVar = "end"
    exit_code: int | None
    """None where nobody could see it: the guard of another launcher's job."""
    reason: str


AnyEvent = (
    RunStarted
    | AttemptStarted
    | WorkerDied
    | AttemptEnded
    | Regrouped
    | WorkerReturned
    | JobStopped
    | GuardStarted
    | GuardDied
    | LauncherDied
    | StepSeen
    | WorkerHung
    | JobSlowed
    | JobRelieved
    | SuspectsNamed
    | Probed
    | Profiled
    | JobHung
    | Decided
    | Applied
    | Verified
    | Ordered
    | Dropped
    | NodeLeft
    | IncidentClosed
    | FaultInjected
    | FaultRelieved
    | RunEnded
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the event log."""

    stamp: Stamp
    event: AnyEvent
