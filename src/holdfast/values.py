"""The vocabulary: frozen values that cross rooms, one definition for memory, log, wire and ``--json``.

*Rank* is a position, *node* is a machine, *step* is one optimizer update, *attempt* counts the
restarts of all workers from 0. Durations are seconds on a local monotonic clock; times are UTC.
"""

from __future__ import annotations

import enum
import math
from typing import ClassVar, Literal, get_args

import msgspec

from holdfast.findings import ChangePoint, Suspect

SCHEMA_VERSION = 1
"""Version of every file in a run directory; raised when a reader of the old one would misread."""

# --- faults -----------------------------------------------------------------------------------

FaultKind = Literal[
    "slow_device",
    "cpu_quota",
    "busy_neighbour",
    "slow_nic",
    "slow_link",
    "kill",
    "hang",
    "data_stall",
    "gc_storm",
    "copy_storm",
    "slow_storage",
]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

FACTOR_KINDS: frozenset[FaultKind] = frozenset(
    {"slow_device", "cpu_quota", "busy_neighbour", "slow_nic", "slow_link", "slow_storage"}
)
"""Kinds whose severity is a factor (2.0 = twice as slow)."""

SECONDS_KINDS: frozenset[FaultKind] = frozenset({"data_stall", "gc_storm", "copy_storm"})
"""Kinds whose severity is seconds added to each step of the target."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing broken on purpose: what, whom, from which step, for how long, how badly."""

    kind: FaultKind
    target: int | tuple[int, int]
    """The rank to hurt; for ``slow_link`` the two ranks at its ends."""
    at_step: int = 0
    """First step that the target spends under the fault."""
    for_steps: int | None = None
    """How many steps it lasts; None means until the end of the run."""
    severity: float = 2.0
    """A factor or seconds per step, depending on the kind; ignored by ``kill`` and ``hang``."""
    via: str = "auto"
    """The mechanism, where a kind has several (``cgroup``, ``sigstop``, ``namespace``, ``pacing``)."""

    def __post_init__(self) -> None:
        if isinstance(self.target, tuple) != (self.kind == "slow_link"):
            expected = "two ranks, such as [0, 1]" if self.kind == "slow_link" else "one rank, such as 1"
            raise ValueError(f"target of {self.kind} is {self.target}, expected {expected}")
        if min(self.ranks) < 0 or len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"target is {self.target}, expected different ranks from 0 up")
        if self.at_step < 0:
            raise ValueError(f"at_step is {self.at_step}, expected 0 or more")
        if self.for_steps is not None and self.for_steps < 1:
            raise ValueError(f"for_steps is {self.for_steps}, expected 1 or more")
        least = 1.0 if self.kind in FACTOR_KINDS else 0.0
        if not math.isfinite(self.severity) or self.severity < least:
            raise ValueError(f"severity of {self.kind} is {self.severity}, expected {least:g} or more")

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that the fault is aimed at."""
        return self.target if isinstance(self.target, tuple) else (self.target,)

    def is_active(self, step: int) -> bool:
        """Say whether a worker in the given step is under the fault."""
        return self.at_step <= step and (self.for_steps is None or step < self.at_step + self.for_steps)


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
    dead: list[int]
    """Ranks, in the order in which they died."""


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
    | JobHung
    | FaultInjected
    | FaultRelieved
    | RunEnded
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the event log."""

    stamp: Stamp
    event: AnyEvent


# --- telemetry --------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One finished optimizer update of one rank."""

    rank: int
    step: int
    ended_s: float
    """On the node's monotonic clock."""
    duration_s: float
    """Since the update before; 0 for the first."""
    attempt: int = 0
    wait_s: float = 0.0
    """Blocked in communication: waiting for others, or for the network."""
    data_s: float = 0.0
    """In the data loader."""
    gc_s: float = 0.0
    """In garbage collections."""
    save_s: float = 0.0
    """Saving something."""
    cpu_s: float = 0.0
    """CPU time of the training thread."""
    moved_bytes: int = 0
    """Given to communication calls."""
    calls: int = 0
    """Of communication."""
    work: int = 0
    """Elements that the data loader gave, such as tokens; 0: not known."""
    flags: int = 0
    """Bits of ``StepFlag``."""
    cycle: int = 0
    """Counts what a step was taken to be; steps of two cycles cannot be compared."""
    channels: tuple[ChannelUse, ...] = ()

    @property
    def own_s(self) -> float:
        """What the rank needed for itself."""
        return max(0.0, self.duration_s - self.wait_s)


class StepFlag(enum.IntFlag):
    """What a step had in it besides training."""

    EVALUATION = 1
    """Batches of a loader that the usual steps do not read from."""
    CHECKPOINT = 2
    SKIPPED = 4
    """The optimizer was not called, as after an overflow."""
    UNMEASURED = 8
    """Waiting was not measured in this step."""
    FIRST = 16
    """Of a cycle; its beginning is not known."""
    COMPILE = 32


class ChannelUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank did in one step through one channel."""

    channel: int
    """A number of this rank's own, from 1; see ``Channel``."""
    wait_s: float
    moved_bytes: int
    calls: int


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A group or a peer that a rank communicates with."""

    number: int
    kind: Literal["group", "to", "from", "rest"]
    ranks: list[int]
    """Members of the group, or the one peer."""
    name: str = ""
    """What the framework calls the group, such as ``mesh_dp``."""


class InCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is in the midst of."""

    rank: int
    calls: int
    """Of communication, begun so far."""
    steps: int = 0
    """Ended so far."""
    since_s: float | None
    """When the one that it is in began, on the node's monotonic clock; None: it is in none."""
    channel: int


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long one step of a job took, whoever measured it."""

    step: int
    duration_s: float
    work: float | None = None
    """What the step had to do, in any unit; None: not known."""


class Phase(enum.IntEnum):
    """What a worker of a pipeline is busy with."""

    OUTSIDE = 0
    """The user's own code."""
    COMPUTE = 1
    """Inside an operation, loading its data included."""
    RECEIVE = 2
    """Waits for the input of an operation."""
    REDUCE = 3
    """In a collective of its stage."""
    SETTLE = 4
    """In a collective of all."""
    REGROUP = 5
    """Recovers from a failure."""
    EVALUATE = 6
    SAVE = 7


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker of a pipeline is, as it said last."""

    rank: int
    pid: int
    generation: int
    step: int
    op: int
    """Index into its order of the generation's schedule; past the last one when all are done; -1 for none."""
    phase: Phase
    since_ns: int
    """When it said so, on the node's monotonic clock."""

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Generation, step, op and phase: whoever gets on changes one of them."""
        return self.generation, self.step, self.op, self.phase


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers of one node did in one second; the only telemetry that reaches the disk."""

    at: str
    node: int
    attempt: int
    steps: dict[str, int]
    """Last step finished, per rank."""
    duration_s: dict[str, float]
    """Median step time within the second, per rank; ranks that finished none are absent."""
    lost: int = 0
    """Step records overwritten before the guard could read them, so far."""


# --- questions --------------------------------------------------------------------------------


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A guard's question to the ranks of its node: where are you?"""

    id: str
    ranks: list[int]
    duration_s: float
    """For how long to look; 0: once."""
    dumps: str | None = None
    """Folder for Flight Recorder dumps; None: none are wanted."""


class LineSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A line of code that the training thread was in."""

    count: int
    """How often it was seen there."""
    file: str
    line: int
    """Of the innermost frame that is not a library's."""
    function: str
    source: str
    inner: list[str]
    """Functions and their lines, from the innermost frame of all outwards; a few."""


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's answer."""

    ask: str
    """What it answers."""
    rank: int
    samples: int
    lines: list[LineSeen]
    """Those seen most often."""
    stack: list[str]
    """The last one, innermost first."""
