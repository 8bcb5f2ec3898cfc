"""What a set of faults means for one worker in one step: pure, so that it can be tested without a worker."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from holdfast.faults import Fault, FaultKind

NETWORK_KINDS: frozenset[FaultKind] = frozenset({"slow_nic", "slow_link"})
IN_PROCESS_KINDS: frozenset[FaultKind] = NETWORK_KINDS | {
    "slow_device",
    "data_stall",
    "gc_storm",
    "copy_storm",
    "slow_storage",
}
"""Kinds that a worker can act out itself."""


class Strain(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker suffers in a step; factors multiply, seconds add up."""

    device_slowdown: float = 1.0
    storage_slowdown: float = 1.0
    stall_s: float = 0.0
    garbage_s: float = 0.0
    copying_s: float = 0.0


def strain_on(faults: Iterable[Fault], *, rank: int, step: int) -> Strain:
    """Return what a rank suffers in a step, the network apart."""
    active = [fault for fault in faults if rank in fault.ranks and fault.is_active(step)]
    return Strain(
        device_slowdown=_product(active, "slow_device"),
        storage_slowdown=_product(active, "slow_storage"),
        stall_s=_total(active, "data_stall"),
        garbage_s=_total(active, "gc_storm"),
        copying_s=_total(active, "copy_storm"),
    )


def link_slowdown(faults: Iterable[Fault], *, ends: tuple[int, int], step: int) -> float:
    """Return how many times slower the path between two ranks is: each slow NIC or link on it counts."""
    return math.prod(
        fault.severity
        for fault in faults
        if fault.is_active(step)
        and (
            (fault.kind == "slow_link" and set(fault.ranks) == set(ends))
            or (fault.kind == "slow_nic" and fault.target in ends)
        )
    )


def concerns(fault: Fault, rank: int) -> bool:
    """Say whether a rank has a part in acting out a fault: its targets do, and in the network everybody."""
    return fault.kind in NETWORK_KINDS or (fault.kind in IN_PROCESS_KINDS and rank in fault.ranks)


def _product(faults: list[Fault], kind: FaultKind) -> float:
    return math.prod(fault.severity for fault in faults if fault.kind == kind)


def _total(faults: list[Fault], kind: FaultKind) -> float:
    return sum((fault.severity for fault in faults if fault.kind == kind), 0.0)
