"""Which mechanisms work on this machine, and which of them a fault is given."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from holdfast.errors import InputError, MissingError
from holdfast.faults import Fault
from holdfast.lab.injectors import Injector, namespaces, quota
from holdfast.lab.injectors.kill import Kill
from holdfast.lab.injectors.namespaces import NamespaceLink, NamespaceNic, Network
from holdfast.lab.injectors.neighbour import BusyNeighbour
from holdfast.lab.injectors.quota import CpuQuota
from holdfast.lab.injectors.stopping import Duty, Hang
from holdfast.lab.kinds import WORKER
from holdfast.lab.strain import NETWORK_KINDS


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """One way to break a job, and whether it works here."""

    name: str
    is_available: bool
    detail: str


def survey() -> list[Mechanism]:
    """Return every mechanism; cheap, and without torch."""
    return [
        _mechanism("worker", is_linux(), "slow_device, data_stall, gc_storm, copy_storm, slow_storage"),
        _mechanism("cgroup cpu", *quota.available()),
        _mechanism("sigstop duty", is_linux(), "SIGSTOP and SIGCONT in turn"),
        _mechanism("busy neighbour", hasattr(os, "sched_setaffinity"), f"{os.cpu_count()} cores"),
        _mechanism("socket pacing", *_pacing_available()),
        _mechanism("network namespaces", *namespaces.available()),
    ]


def is_linux() -> bool:
    """Say whether this is Linux, which all mechanisms need."""
    return sys.platform == "linux"


def choose(fault: Fault, *, has_network: bool) -> str:
    """Return the mechanism for a fault; ``auto`` takes the most faithful one that works here."""
    if fault.via == "namespace" and not has_network:
        raise InputError(f"{fault.kind} via namespace: the job was not started in namespaces; use via=pacing")
    if fault.via == "cgroup" and not quota.available()[0]:
        raise MissingError(f"{fault.kind} via cgroup: {quota.available()[1]}; use via=sigstop")
    if fault.via != "auto":
        return fault.via
    if fault.kind == "cpu_quota":
        return "cgroup" if quota.available()[0] else "sigstop"
    if fault.kind in NETWORK_KINDS:
        return "namespace" if has_network else "pacing"
    names = {"busy_neighbour": "process", "kill": "sigkill", "hang": "sigstop"}
    return names.get(fault.kind, WORKER)


def build(fault: Fault, via: str, *, pid: int, network: Network | None) -> Injector | None:
    """Return the injector for a fault, None where the worker acts it out itself."""
    if via in (WORKER, "pacing"):
        return None
    if fault.kind in NETWORK_KINDS:
        if network is None:
            raise MissingError(f"{fault.kind} via namespace: the job was not started in namespaces")
        if isinstance(fault.target, tuple):
            return NamespaceLink(network, fault.target, fault.severity)
        return NamespaceNic(network, fault.target, fault.severity)
    if fault.kind == "cpu_quota":
        return CpuQuota(pid, fault.severity) if via == "cgroup" else Duty(pid, fault.severity)
    if fault.kind == "busy_neighbour":
        return BusyNeighbour(pid, fault.severity)
    return Kill(pid) if fault.kind == "kill" else Hang(pid)


def sweep() -> None:
    """Remove what labs that died have left on this machine."""
    if quota.available()[0]:
        quota.sweep()
    if namespaces.available()[0]:
        namespaces.sweep()


def _mechanism(name: str, is_available: bool, detail: str) -> Mechanism:
    return Mechanism(name=name, is_available=is_available, detail=detail)


def _pacing_available() -> tuple[bool, str]:
    # TCP itself paces since 4.13; before, a queueing discipline had to.
    if not is_linux() or not Path("/proc/self/fd").exists():
        return False, "needs Linux with /proc"
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    if (major, minor) < (4, 13):
        return False, f"kernel {os.uname().release}, needs 4.13 or later"
    return True, "SO_MAX_PACING_RATE on the worker's own sockets"
