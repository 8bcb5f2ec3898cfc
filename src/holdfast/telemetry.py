"""What is seen of a job while it runs: values that cross rooms, but are no events and reach no log.

Durations are seconds on a local monotonic clock; of two nodes they are never subtracted.
"""

from __future__ import annotations

import enum
import re
from typing import Literal

import msgspec

# --- steps ------------------------------------------------------------------------------------


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
    operations_s: float = 0.0
    """In the operations of a plan, without waiting; 0: not known."""
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
    PLANNED = 64
    """Its work is the count of operations that a plan gives to the rank, not the size of its batches."""


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
    held: int = -1
    """Pipeline and stage that it holds, ``pipeline * pp + stage``; -1: those of its rank."""

    @property
    def seat(self) -> int:
        """Return what it holds as the schedule counts: its line there."""
        return self.held if self.held >= 0 else self.rank

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
    own_s: dict[str, float] = {}
    """Of that, what the rank needed for itself: without waiting for others."""
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


# --- profiles ---------------------------------------------------------------------------------

ProfileOutcome = Literal["done", "late", "busy", "failed"]


class ProfileOrder(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks are to be profiled over the same steps."""

    id: str
    """Of this order alone in the whole run; also part of a file's name."""
    ranks: list[int]
    first_step: int
    last_step: int
    """The last one that is profiled."""
    folder: str
    """For the traces."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.id):
            raise ValueError(f"id is {self.id!r}, expected 1 to 64 letters, digits, '_' or '-'")
        if not 0 <= self.first_step <= self.last_step:
            raise ValueError(f"steps are {self.first_step} to {self.last_step}, expected 0 or more, in order")


class ProfileResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order on one rank."""

    order: str
    """Its id."""
    rank: int
    outcome: ProfileOutcome
    """Late: the first step was over; busy: somebody else profiles this process."""
    trace: str | None = None
    """File of the trace."""
    steps: int = 0
    blocked_s: float = 0.0
    """For how long training stood still because of it: to start, to stop and to save."""
    error: str | None = None
    """Why there is no trace."""
