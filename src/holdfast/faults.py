"""Faults that are made on purpose: what, whom, from which step, how badly."""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec

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
