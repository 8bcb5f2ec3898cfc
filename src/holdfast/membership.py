"""The vocabulary of who is in: what workers tell the controller, and what it answers.

One definition serves the controller's fold and the wire between workers and hub.
"""

from __future__ import annotations

import msgspec

from holdfast.commit import Agreement, Standing


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker brings with it: the job as its script describes it."""

    dp: int
    pp: int
    microbatches: int
    fault_free: str = "zero_bubble"
    """The schedule while nobody is slow or dead: ``1f1b`` or ``zero_bubble``."""
    costs: tuple[tuple[float, float, float], ...] = ()
    """Per stage: forward, input and weight, in one unit for all; none means 1, 1, 1 everywhere."""
    comm: float = 0.0


# --- events -----------------------------------------------------------------------------------


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag="joined"):
    """A worker said who it is."""

    rank: int
    needs: Needs


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="reported"):
    """A worker has left its generation, and waits to be told where to go on."""

    rank: int
    generation: int
    """The one it was in; -1 at the start."""
    standing: Standing
    speeds: dict[str, float] | None = None
    """What the script asks to plan with from now on, by worker; None: as before."""
    cap: int | None = None
    """How many micro-batches fit into the worker's memory; None: as before, at first any number."""
    lost: str = ""
    """What failed, in the words of whoever noticed it; empty where the script wanted a new generation."""


class Left(msgspec.Struct, frozen=True, kw_only=True, tag="left"):
    """A worker is gone: dead, or done with its work."""

    rank: int
    is_done: bool = False


Event = Joined | Reported | Left

# --- actions ----------------------------------------------------------------------------------


class Regroup(msgspec.Struct, frozen=True, kw_only=True, tag="regroup"):
    """Go on as this generation."""

    generation: int
    members: list[int]
    """Ranks, in order."""
    agreement: Agreement
    schedule: str


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Training cannot go on."""

    reason: str


Action = Regroup | Stop
