"""The reference of fault kinds: what severity means, by which mechanisms, and what they need."""

from __future__ import annotations

import msgspec

from holdfast.faults import FAULT_KINDS, FaultKind

WORKER = "worker"
"""The mechanism of kinds that a worker acts out in its own process."""


class KindReference(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table in the docs."""

    kind: FaultKind
    severity: str
    mechanisms: tuple[str, ...]
    """Names for ``via``; the first is what ``auto`` prefers where it is available."""
    needs: str
    what: str


def _row(kind: FaultKind, severity: str, mechanisms: tuple[str, ...], needs: str, what: str) -> KindReference:
    return KindReference(kind=kind, severity=severity, mechanisms=mechanisms, needs=needs, what=what)


_ROWS = (
    _row(
        "slow_device", "factor", (WORKER,), "an emulated accelerator", "every op of the device takes longer"
    ),
    _row("cpu_quota", "factor", ("cgroup", "sigstop"), "cgroup: root; sigstop: nothing", "less CPU time"),
    _row("busy_neighbour", "whole factor", ("process",), "a target pinned to one core", "rivals on its core"),
    _row("slow_nic", "factor", ("namespace", "pacing"), "namespace: root, iproute2", "all traffic of a rank"),
    _row("slow_link", "factor", ("namespace", "pacing"), "namespace: root, iproute2", "traffic of one pair"),
    _row("kill", "ignored", ("sigkill",), "nothing", "the worker dies"),
    _row("hang", "ignored", ("sigstop",), "nothing", "the worker stands still"),
    _row("data_stall", "seconds", (WORKER,), "a DataLoader in the job", "the data loader sleeps each step"),
    _row("gc_storm", "seconds", (WORKER,), "nothing", "a garbage collection each step"),
    _row("copy_storm", "seconds", (WORKER,), "nothing", "copies in memory each step"),
    _row("slow_storage", "factor", (WORKER,), "a job that reads by os.pread", "every read takes longer"),
)

REFERENCE: dict[FaultKind, KindReference] = {row.kind: row for row in _ROWS}
assert tuple(REFERENCE) == FAULT_KINDS, "the table has one row per kind, in their order"
